"""The calls of tests/runtimes/http2_clients.rs by httpx: URL [CA] [PROXY]."""

import asyncio
import ssl
import sys

import httpx


async def main(url, ca, proxy):
    verify = ssl.create_default_context(cafile=ca) if ca else False
    is_plain = url.startswith("http:")
    async with httpx.AsyncClient(
        http1=not is_plain, http2=True, verify=verify, proxy=proxy or None, trust_env=False, timeout=200
    ) as client:
        for method, path, content in [
            ("GET", "/hello", None),
            ("POST", "/length", bytes(1 << 20)),
            ("GET", "/not-modified", None),
        ]:
            response = await client.request(method, url + path, content=content)
            print(response.text, response.status_code)
        response = await client.head(url + "/hello")
        print(response.headers["content-length"], response.status_code)
        together = [client.get(f"{url}/together/{number}") for number in range(1, 21)]
        for response in await asyncio.gather(*together):
            print(len(response.content), response.status_code)


asyncio.run(main(*sys.argv[1:]))
