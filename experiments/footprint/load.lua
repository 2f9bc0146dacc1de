-- What wrk sends, and its figures as JSON on a line of its own. Arguments: BODY_BYTES, more than 0 makes it a POST.

function init(args)
   local body_bytes = tonumber(args[1] or "0")
   if body_bytes > 0 then
      wrk.method = "POST"
      wrk.body = string.rep("x", body_bytes)
   end
end

function done(summary, latency)
   local errors = summary.errors
   io.write(string.format(
      '{"requests": %d, "duration_us": %d, "errors": %d, "p50_us": %.1f, "p99_us": %.1f}\n',
      summary.requests, summary.duration,
      errors.connect + errors.read + errors.write + errors.status + errors.timeout,
      latency:percentile(50), latency:percentile(99)))
end
