package docsite

import (
	"bytes"
	"fmt"
	"html"
)

// Pages are written without html/template, and so is everything else in the program: a template calls methods by name, and one that can be
// executed makes the linker keep every exported method of every type, which made the program a fifth larger. TestUnusedMethodsAreNotLinked in internal/e2e watches that.

// page is a page of the site.
type page struct {
	bytes.Buffer
	target  string // its address
	nav     []group
	version string
}

// write writes a format, with what it is given as text, not as HTML.
func (p *page) write(format string, texts ...string) {
	escaped := make([]any, len(texts))
	for i, t := range texts {
		escaped[i] = html.EscapeString(t)
	}
	fmt.Fprintf(p, format, escaped...)
}

func (p *page) head(title string) {
	name := title
	if title != "understudy" {
		name += " · understudy"
	}
	p.write(`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width,initial-scale=1">
<title>%s</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="style.css">
</head>
`, name)
}

// frame writes what all pages have around their text: the way to the first page, the search, and the navigation.
func (p *page) frame() {
	p.write(`<header>
<a class="home" href="index.html">understudy <small>%s</small></a>
<div class="search"><input id="search" type="search" placeholder="Search (press /)" aria-label="Search the documentation" autocomplete="off" aria-controls="found"><ol id="found" hidden></ol></div>
`, p.version)
	p.link("api.html", "API reference")
	p.WriteString("</header>\n<nav class=\"pages\" aria-label=\"Pages\">\n")
	for _, g := range p.nav {
		p.write("<h2>%s</h2>\n", g.Title)
		for _, l := range g.Links {
			p.link(l.Target, l.Title)
		}
	}
	p.WriteString("</nav>\n")
}

// link writes a link, marked when it leads to this page.
func (p *page) link(target, title string) {
	current := ""
	if target == p.target {
		current = ` aria-current="page"`
	}
	p.write(`<a href="%s"`+current+">%s</a>\n", target, title)
}

// document writes the page of a document.
func (p *page) document(d *document) {
	p.head(d.Title)
	p.WriteString("<body>\n")
	p.frame()
	p.WriteString("<main>\n" + d.Body + "\n</main>\n")
	if len(d.Sections) > 0 {
		p.WriteString(`<aside><nav aria-label="On this page"><h2>On this page</h2>`)
		for _, s := range d.Sections {
			p.write(`<a href="%s#%s">%s</a>`, p.target, s.Anchor, s.Title)
		}
		p.WriteString("</nav></aside>\n")
	}
	if d.Diagrams {
		p.WriteString("<script src=\"mermaid.tiny.js\"></script>\n")
	}
	p.WriteString("<script src=\"site.js\"></script>\n</body>\n</html>\n")
}

// reference writes the page of the API. A server has the description at /openapi.json; pages opened from a disk load scripts only.
func (p *page) reference(live bool) {
	p.head("API reference")
	p.WriteString("<body class=\"api\">\n<link rel=\"stylesheet\" href=\"swagger-ui.css\">\n")
	p.frame()
	p.WriteString("<main>\n<div id=\"api\"></div>\n")
	if live {
		p.WriteString("<noscript>The description of the API is in <a href=\"../openapi.json\">openapi.json</a>.</noscript>\n</main>\n")
	} else {
		p.WriteString("</main>\n<script src=\"openapi.js\"></script>\n")
	}
	p.WriteString("<script src=\"swagger-ui-bundle.js\"></script>\n<script src=\"site.js\"></script>\n</body>\n</html>\n")
}
