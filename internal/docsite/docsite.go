// Package docsite makes a web site of the documentation: a page for each Markdown file, a search that works offline, and a reference of the API in which
// requests can be tried. The server shows it at /docs; `make docs` writes it to a folder.
package docsite

import (
	"bytes"
	"compress/gzip"
	"embed"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"os"
	"path"
	"path/filepath"
	"strings"
)

//go:embed assets/*.gz assets/LICENSES assets/site.js assets/style.css
var assets embed.FS

// Options describe a site.
type Options struct {
	Docs    fs.FS  // Markdown files and their pictures (*.png); README.md is the first page, and its links are the navigation
	OpenAPI []byte // description of the API
	Version string // of the program
	// Live: a server of that API serves the site at /docs, so its requests can be tried.
	Live bool
}

// File is a file of a site.
type File struct {
	Type string // media type
	Gzip bool   // Body is compressed
	Body []byte
}

// Site is a set of files by their names relative to its root, such as "index.html".
type Site map[string]File

// Build makes a site.
func Build(o Options) (Site, error) {
	s := Site{}
	if err := s.addAssets(); err != nil {
		return nil, err
	}
	if err := s.addPictures(o.Docs); err != nil {
		return nil, err
	}
	docs, err := readAll(o.Docs)
	if err != nil {
		return nil, err
	}
	nameLinks(docs)
	nav, err := navigation(docs)
	if err != nil {
		return nil, err
	}
	var index []entry
	for _, d := range docs {
		index = append(index, d.entries...)
		p := page{target: d.Target(), nav: nav, version: o.Version}
		p.document(d)
		s.add(p.target, p.Bytes())
	}
	p := page{target: "api.html", nav: nav, version: o.Version}
	p.reference(o.Live)
	s.add(p.target, p.Bytes())
	if !o.Live {
		s.add("openapi.js", fmt.Appendf(nil, "window.openapi = %s;\n", o.OpenAPI))
	}
	text, err := json.Marshal(index)
	if err != nil {
		return nil, err
	}
	s.add("search-index.js", fmt.Appendf(nil, "window.searchIndex = %s;\n", text))
	return s, nil
}

func (s Site) add(name string, body []byte) {
	s[name] = File{Type: mime.TypeByExtension(path.Ext(name)), Body: body}
}

func (s Site) addPictures(docs fs.FS) error {
	names, err := fs.Glob(docs, "*.png")
	if err != nil {
		return err
	}
	for _, name := range names {
		body, err := fs.ReadFile(docs, name)
		if err != nil {
			return err
		}
		s.add(name, body)
	}
	return nil
}

func (s Site) addAssets() error {
	return fs.WalkDir(assets, "assets", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		body, err := fs.ReadFile(assets, name)
		if err != nil {
			return err
		}
		target, packed := strings.CutSuffix(path.Base(name), ".gz")
		s.add(target, body)
		f := s[target]
		f.Gzip = packed
		if f.Type == "" {
			f.Type = "text/plain; charset=utf-8"
		}
		s[target] = f
		return nil
	})
}

// Write writes the files to a folder, which is created.
func (s Site) Write(folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	for name, f := range s {
		body, err := f.Plain()
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := os.WriteFile(filepath.Join(folder, filepath.FromSlash(name)), body, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// Plain returns the body, decompressed.
func (f File) Plain() ([]byte, error) {
	if !f.Gzip {
		return f.Body, nil
	}
	r, err := gzip.NewReader(bytes.NewReader(f.Body))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}
