// Command build writes the documentation as a web site that needs no server.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"understudy/docs"
	"understudy/internal/docsite"
	"understudy/server"
)

func main() {
	out := flag.String("out", "bin/docs", "`folder` of the site")
	version := flag.String("version", "", "`version` that the pages show")
	flag.Parse()
	if err := write(*out, *version); err != nil {
		fmt.Fprintln(os.Stderr, "build the documentation:", err)
		os.Exit(1)
	}
	fmt.Println("open", filepath.Join(*out, "index.html"))
}

func write(folder, version string) error {
	pages, err := docsite.Build(docsite.Options{Docs: docs.Files, OpenAPI: server.New(server.Options{Version: version}).OpenAPI(), Version: version})
	if err != nil {
		return err
	}
	return pages.Write(folder)
}
