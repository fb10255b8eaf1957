# The session with dalli, which speaks the binary protocol (and the meta protocol from 3.2 on).
require "dalli"

client = Dalli::Client.new(ARGV[0], socket_timeout: 5, serializer: Marshal)
short = ->(value) { value.is_a?(String) && value.size > 100 ? "#{value.size} bytes" : value.inspect }
call = lambda do |name, *words|
  result = client.public_send(name, *words)
  result = !!result if %i[set add replace cas].include?(name) && result
  puts "#{name} #{words.first}: #{short.call(result)}"
rescue Dalli::DalliError => error
  puts "#{name} #{words.first}: #{error.class} #{error.message}"
end

call.call(:flush)
call.call(:set, "k", "value")
call.call(:get, "k")
call.call(:get, "none")
call.call(:add, "k", "other")
call.call(:replace, "k", "new")
call.call(:replace, "none", "new")
call.call(:set, "raw", "b", 0, raw: true)
call.call(:append, "raw", "c")
call.call(:prepend, "raw", "a")
puts "raw: #{client.get('raw', raw: true)}"
puts "multi: #{client.get_multi('k', 'none').inspect}"
call.call(:incr, "n", 1, 0, 41)
call.call(:incr, "n", 1, 0, 41)
call.call(:decr, "n", 100)
puts "cas: #{!!client.cas('k') { |value| "#{value} by cas" }}"
call.call(:get, "k")
call.call(:touch, "k", 100)
call.call(:gat, "k", 100)
call.call(:set, "long", "y" * 900_000, 0, raw: true)
puts "long: #{client.get('long', raw: true).size}"
call.call(:delete, "k")
call.call(:delete, "k")
puts "stats: #{client.stats.values.first.key?('curr_items')}"
puts "alive: #{!!client.alive!}"
client.close
