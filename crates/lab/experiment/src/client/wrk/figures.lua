-- Prints wrk's figures as JSON on the last line, with all whole percentiles, which wrk's own report omits.

-- The argument is the size of the body of a POST, or 0 for GET.
function init(args)
   local bytes = tonumber(args[1])
   if bytes > 0 then
      wrk.method = "POST"
      wrk.body = string.rep("x", bytes)
      wrk.headers["Content-Type"] = "application/octet-stream"
   end
end

function done(summary, latency)
   local times = { latency.min }
   for percent = 1, 99 do
      times[#times + 1] = latency:percentile(percent)
   end
   times[#times + 1] = latency.max
   for index, time in ipairs(times) do
      times[index] = string.format("%d", time)
   end
   local errors = summary.errors
   local mean = latency.mean == latency.mean and latency.mean or 0 -- NaN without responses
   io.write(string.format(
      '{"requests": %d, "duration_us": %d, "failed": %d, "mean_us": %.1f, "p99_9_us": %d, "percentiles_us": [%s]}\n',
      summary.requests, summary.duration,
      errors.connect + errors.read + errors.write + errors.status + errors.timeout,
      mean, latency:percentile(99.9), table.concat(times, ", ")))
end
