# Stores the keys of standard input on memcached servers, where dalli puts them.
#
# usage: store_by_dalli.rb HOST:PORT:WEIGHT...
require "dalli"

client = Dalli::Client.new(ARGV, socket_timeout: 5)
$stdin.read.split.each do |key|
  client.set(key, "1", 0, raw: true) or abort "#{key} was not stored"
end
client.close
