-- Has wrk print its figures as JSON, on a line of their own and last: all whole percentiles, which its report leaves out.

-- The size of a body that makes requests a POST; 0 for GET.
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
   local mean = latency.mean == latency.mean and latency.mean or 0 -- not a number where nothing was answered
   io.write(string.format(
      '{"requests": %d, "duration_us": %d, "failed": %d, "mean_us": %.1f, "p99_9_us": %d, "percentiles_us": [%s]}\n',
      summary.requests, summary.duration,
      errors.connect + errors.read + errors.write + errors.status + errors.timeout,
      mean, latency:percentile(99.9), table.concat(times, ", ")))
end
