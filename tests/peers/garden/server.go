// Command server is Go's HTTP server: it reports each request on standard output before it responds.
package main

import (
	"encoding/hex"
	"fmt"
	"hash/adler32"
	"io"
	"log"
	"net/http"
	"os"
	"strings"
)

func text(value string) string {
	if value == "" {
		return "-"
	}
	return hex.EncodeToString([]byte(value))
}

func serve(response http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(request.Body)
	if err != nil {
		http.Error(response, "unreadable", http.StatusBadRequest)
		return
	}
	line := fmt.Sprintf("R %s %s %d %d %s", text(request.Method), text(request.RequestURI), len(body),
		adler32.Checksum(body), text(string(body[:min(len(body), 512)])))
	for name, values := range request.Header {
		for _, value := range values {
			line += " " + text(name) + ":" + text(value)
		}
	}
	os.Stdout.WriteString(line + "\n")
	response.Header().Set("x-echo", strings.Map(func(char rune) rune {
		if char == '-' || char >= '0' && char <= '9' || char >= 'a' && char <= 'z' {
			return char
		}
		return -1
	}, request.Header.Get("x-case")))
	io.WriteString(response, "ok\n")
}

func main() {
	server := http.Server{Addr: "127.0.0.1:" + os.Args[1], Handler: http.HandlerFunc(serve), ErrorLog: log.New(io.Discard, "", 0)}
	log.Fatal(server.ListenAndServe())
}
