// Node's own fetch with HTTP_PROXY: fetches every URL and prints the responses, as JSON.
import { EnvHttpProxyAgent, setGlobalDispatcher } from "undici";

setGlobalDispatcher(new EnvHttpProxyAgent());

const results = [];
for (const url of process.argv.slice(2)) {
  const response = await fetch(url, url.includes("/post") ? { method: "POST", body: "from node" } : {});
  results.push({ status: response.status, url: response.url, via: response.headers.get("via"), text: await response.text() });
}
console.log(JSON.stringify(results));
process.exit(0);
