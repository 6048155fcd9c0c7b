// Command provider is an OpenID provider for tests in browsers. It prints its address and its client's secret, and ends with its standard input.
package main

import (
	"fmt"
	"io"
	"os"

	"understudy/internal/oidctest"
)

func main() {
	p, server := oidctest.Start()
	defer server.Close()
	fmt.Println(p.URL, p.ClientID, p.ClientSecret)
	_, _ = io.Copy(io.Discard, os.Stdin)
}
