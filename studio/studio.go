// Package studio has the pages at /studio/: a user interface for the API, built from the sources in the folder ui by `make ui`. They talk to the API
// of the server that sends them, and to nothing else. A program built with the tag nostudio has none.
package studio

import (
	"bytes"
	"io"
	"path"
	"strings"

	"github.com/andybalholm/brotli"
)

// Policy is the Content-Security-Policy of the pages. They load from and speak to their own server only, show pictures that came inside of messages,
// and have no place where text could become a script: require-trusted-types-for makes the attempt an error. Layouts set styles on elements.
const Policy = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; connect-src 'self'; " +
	"frame-ancestors 'none'; base-uri 'self'; form-action 'none'; require-trusted-types-for 'script'"

// File is a part of the pages.
type File struct {
	Type      string // for Content-Type
	Brotli    []byte // compressed
	Immutable bool   // its name changes with its content
	Document  bool   // it is what all pages share, see Document
}

// document is the file of Document.
const document = "index.html"

var types = map[string]string{
	".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml", ".txt": "text/plain; charset=utf-8",
}

// Find returns the file of a path below /studio/. Any path without a file extension is one of the pages, which share one document.
// Nothing is found unless Built.
func Find(name string) (File, bool) {
	ext := path.Ext(name)
	if ext == "" {
		name, ext = document, ".html"
	}
	body, err := files.ReadFile("dist/" + name + ".br")
	if err != nil || types[ext] == "" {
		return File{}, false
	}
	return File{Type: types[ext], Brotli: body, Immutable: strings.HasPrefix(name, "assets/"), Document: name == document}, true
}

// Plain returns the file for a client that does not read brotli.
func (f File) Plain() ([]byte, error) { return io.ReadAll(brotli.NewReader(bytes.NewReader(f.Brotli))) }

// Document returns the page for a server whose pages are below base, such as /studio/ or /prefix/studio/. It is not compressed.
func Document(base string) ([]byte, error) {
	f, _ := Find("")
	body, err := f.Plain()
	if err != nil {
		return nil, err
	}
	return bytes.Replace(body, []byte(`<base href="/studio/" />`), []byte(`<base href="`+base+`" />`), 1), nil
}
