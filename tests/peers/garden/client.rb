# Ruby's Net::HTTP. Input and output are those of clients.py.
require "net/http"
require "zlib"

$stdout.sync = true
# A line can be longer than what the system writes in one piece.
LOCK = Mutex.new
HEX = ->(text) { text.empty? ? "-" : text.b.unpack1("H*") }

def seen(response)
  body = (response.body || "").b
  parts = ["R", HEX[response.code], "-", body.size, Zlib.adler32(body), HEX[body[0, 512]]]
  (parts + response.to_hash.flat_map { |name, values| values.map { |value| "#{HEX[name]}:#{HEX[value]}" } }).join(",")
end

def visit(number, base)
  uri = URI(base)
  http = Net::HTTP.new(uri.host, uri.port, nil)
  http.open_timeout = http.read_timeout = 30
  http.max_retries = 0
  results = %w[r ok].map do |name|
    http.start unless http.started?
    seen(http.get("/q#{number}-#{name}"))
  rescue StandardError
    http.finish if http.started?
    "E"
  end
  LOCK.synchronize { $stdout.write("C #{number} #{results.join(" ")}\n") }
ensure
  http.finish if http&.started?
end

lines = Queue.new
threads = Array.new(32) { Thread.new { while (line = lines.pop) do visit(*line.split) end } }
$stdin.each_line { |line| lines << line }
lines.close
threads.each(&:join)
