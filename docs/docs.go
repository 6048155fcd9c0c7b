// Package docs is the documentation, for the program that serves it.
package docs

import "embed"

// Files are the pages, in Markdown, and their pictures.
//
//go:embed *.md studio-*.png
var Files embed.FS
