-- What wrk asks for, and how it reports.
--
-- Without arguments every request is the URL of the command line. With `PREFIX COUNT` the requests
-- go in turn through PREFIX0 .. PREFIX(COUNT-1). They are made before the measurement starts.

function init(args)
  if #args < 2 then return end
  local prefix, count = args[1], tonumber(args[2])
  local requests = {}
  for index = 1, count do
    requests[index] = wrk.format("GET", prefix .. (index - 1))
  end
  local last = 0
  request = function()
    last = last % count + 1
    return requests[last]
  end
end

-- One line that `harness/wrk.py` reads: exact counts instead of wrk's rounded ones.
function done(summary, latency, _)
  local errors = summary.errors
  io.write(string.format(
    'dwell-bench {"requests": %d, "microseconds": %d, "bytes": %d, "p50_us": %d, "p99_us": %d, '
      .. '"errors": {"connect": %d, "read": %d, "write": %d, "timeout": %d, "status": %d}}\n',
    summary.requests, summary.duration, summary.bytes,
    latency:percentile(50), latency:percentile(99),
    errors.connect, errors.read, errors.write, errors.timeout, errors.status))
end
