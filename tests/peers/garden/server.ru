# Puma's application: reports each request on standard output, then responds.
require "zlib"

$stdout.sync = true
# A line can be longer than what the system writes in one piece.
LOCK = Mutex.new
HEX = ->(text) { text.empty? ? "-" : text.b.unpack1("H*") }

run lambda { |env|
  body = env["rack.input"].read.b
  fields = env.select { |key, _| key.start_with?("HTTP_") && key != "HTTP_VERSION" }.transform_keys { |key| key[5..].tr("_", "-") }
  fields["content-type"] = env["CONTENT_TYPE"] if env["CONTENT_TYPE"]
  target = env["REQUEST_URI"] || env["PATH_INFO"]
  line = ["R", HEX[env["REQUEST_METHOD"]], HEX[target], body.size, Zlib.adler32(body), HEX[body[0, 512]]]
  line += fields.map { |name, value| "#{HEX[name]}:#{HEX[value]}" }
  LOCK.synchronize { $stdout.write(line.join(" ") + "\n") }
  [200, { "x-echo" => (fields["X-CASE"] || "-").gsub(/[^a-z0-9-]/n, ""), "content-length" => "3" }, ["ok\n"]]
}
