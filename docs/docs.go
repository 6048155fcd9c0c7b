// Package docs is the documentation, for the program that serves it.
package docs

import "embed"

// Files are the pages, in Markdown.
//
//go:embed *.md
var Files embed.FS
