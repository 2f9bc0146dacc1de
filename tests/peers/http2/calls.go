// The calls of tests/runtimes/http2_clients.rs by Go's net/http: URL [CA]. The proxy is in the environment.
package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
)

func try[T any](value T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return value
}

func client(url, ca string) *http.Client {
	protocols := new(http.Protocols)
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, Protocols: protocols}
	if strings.HasPrefix(url, "http:") {
		protocols.SetUnencryptedHTTP2(true)
	} else {
		protocols.SetHTTP1(true)
		protocols.SetHTTP2(true)
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(try(os.ReadFile(ca)))
		transport.TLSClientConfig = &tls.Config{RootCAs: roots}
	}
	return &http.Client{Transport: transport}
}

func main() {
	url, ca := os.Args[1], os.Args[2]
	client := client(url, ca)
	call := func(method, path string, body []byte) (string, *http.Response) {
		request := try(http.NewRequest(method, url+path, bytes.NewReader(body)))
		response := try(client.Do(request))
		return string(try(io.ReadAll(response.Body))), response
	}
	for _, asked := range []struct {
		method, path string
		body         []byte
	}{{"GET", "/hello", nil}, {"POST", "/length", make([]byte, 1<<20)}, {"GET", "/not-modified", nil}} {
		text, response := call(asked.method, asked.path, asked.body)
		fmt.Println(text, response.StatusCode)
	}
	_, head := call("HEAD", "/hello", nil)
	fmt.Println(head.ContentLength, head.StatusCode)
	lines := make(chan string)
	for number := 1; number <= 20; number++ {
		go func() {
			text, response := call("GET", fmt.Sprint("/together/", number), nil)
			lines <- fmt.Sprint(len(text), " ", response.StatusCode)
		}()
	}
	for range 20 {
		fmt.Println(<-lines)
	}
}
