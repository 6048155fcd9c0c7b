package docsite

import (
	"bytes"
	"fmt"
	"html"
	"io/fs"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	render "github.com/yuin/goldmark/renderer/html"
	"github.com/yuin/goldmark/text"
)

const first = "README.md"

// document is a page made from Markdown.
type document struct {
	name     string // of the file
	Title    string
	Body     string    // HTML
	Sections []section // headings of the second level
	Diagrams bool
	entries  []entry
	groups   []group // of its links
}

type section struct{ Anchor, Title string }

// entry is what a search finds.
type entry struct {
	Page  string `json:"page"`  // address within the site
	Title string `json:"title"` // of the page
	Head  string `json:"head"`  // of the section; "" the beginning of the page
	Text  string `json:"text"`
}

// group is a part of the navigation.
type group struct {
	Title string
	Links []link
}

type link struct{ Target, Title string }

// Target is the address of the page.
func (d *document) Target() string { return target(d.name) }

// target is the address of the page of a Markdown file.
func target(name string) string {
	if name == first {
		return "index.html"
	}
	return strings.TrimSuffix(name, ".md") + ".html"
}

var markdown = goldmark.New(
	goldmark.WithExtensions(extension.GFM),
	goldmark.WithParserOptions(parser.WithAutoHeadingID()),
	goldmark.WithRendererOptions(render.WithUnsafe()), // the files are our own
)

// readAll reads all documents, the first page first.
func readAll(fsys fs.FS) ([]*document, error) {
	names, err := fs.Glob(fsys, "*.md")
	if err != nil {
		return nil, err
	}
	var all []*document
	for _, name := range names {
		source, err := fs.ReadFile(fsys, name)
		if err != nil {
			return nil, err
		}
		d, err := parse(name, source)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, d)
	}
	slices.SortStableFunc(all, func(a, b *document) int {
		switch {
		case a.name == first:
			return -1
		case b.name == first:
			return 1
		}
		return strings.Compare(a.Title, b.Title)
	})
	return all, nil
}

// navigation returns the links of the first page by section, and refuses documents that it does not name.
func navigation(docs []*document) ([]group, error) {
	if len(docs) == 0 || docs[0].name != first {
		return nil, fmt.Errorf("there is no %s", first)
	}
	named := map[string]bool{docs[0].Target(): true}
	for _, g := range docs[0].groups {
		for _, l := range g.Links {
			named[l.Target] = true
		}
	}
	for _, d := range docs {
		if !named[d.Target()] {
			return nil, fmt.Errorf("%s has no link to %s", first, d.name)
		}
	}
	return docs[0].groups, nil
}

var linkToFile = regexp.MustCompile(`(<a href="([^"#]+)[^"]*">)[\w-]+\.md</a>`)

// nameLinks lets links whose text is the name of a file show the title of its page.
func nameLinks(docs []*document) {
	titles := map[string]string{}
	for _, d := range docs {
		titles[d.Target()] = d.Title
	}
	for _, d := range docs {
		d.Body = linkToFile.ReplaceAllStringFunc(d.Body, func(m string) string {
			parts := linkToFile.FindStringSubmatch(m)
			if title := titles[parts[2]]; title != "" {
				return parts[1] + html.EscapeString(title) + "</a>"
			}
			return m
		})
	}
}

func parse(name string, source []byte) (*document, error) {
	d := &document{name: name}
	root := markdown.Parser().Parse(text.NewReader(source))
	current := entry{Page: d.Target()}
	flush := func() {
		if current.Text = strings.Join(strings.Fields(current.Text), " "); current.Text != "" || current.Head != "" {
			d.entries = append(d.entries, current)
		}
	}
	var outside []*ast.Link
	err := ast.Walk(root, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Heading:
			title := plain(n, source)
			if n.Level == 1 {
				d.Title = title
				return ast.WalkSkipChildren, nil
			}
			id, _ := n.AttributeString("id")
			anchor, _ := id.([]byte)
			flush()
			current = entry{Page: d.Target() + "#" + string(anchor), Head: title}
			if n.Level == 2 {
				d.Sections = append(d.Sections, section{Anchor: string(anchor), Title: title})
				d.groups = append(d.groups, group{Title: title})
			}
			return ast.WalkSkipChildren, nil
		case *ast.Link:
			to, inside := rewrite(string(n.Destination))
			if !inside {
				outside = append(outside, n)
				break
			}
			n.Destination = []byte(to)
			if len(d.groups) > 0 && !strings.Contains(to, "://") && !strings.Contains(to, "#") {
				g := &d.groups[len(d.groups)-1]
				g.Links = append(g.Links, link{Target: to, Title: plain(n, source)})
			}
		case *ast.FencedCodeBlock:
			d.Diagrams = d.Diagrams || string(n.Language(source)) == "mermaid"
			current.Text += " " + string(n.Lines().Value(source))
		case *ast.CodeBlock:
			current.Text += " " + string(n.Lines().Value(source))
		case *ast.Text:
			current.Text += string(n.Value(source))
			if n.SoftLineBreak() || n.HardLineBreak() {
				current.Text += " "
			}
		case *ast.Paragraph, *ast.TextBlock, *ast.ListItem:
			current.Text += " "
		}
		if n.Kind().String() == "TableCell" {
			current.Text += " "
		}
		return ast.WalkContinue, nil
	})
	if err != nil {
		return nil, err
	}
	flush()
	if d.Title == "" {
		return nil, fmt.Errorf("it has no heading of the first level")
	}
	for i := range d.entries {
		d.entries[i].Title = d.Title
	}
	for _, n := range outside {
		unlink(n)
	}
	var b bytes.Buffer
	if err := markdown.Renderer().Render(&b, source, root); err != nil {
		return nil, err
	}
	d.Body = b.String()
	return d, nil
}

// rewrite returns the destination of a link within the site. inside is false for files of the repository that are no documents.
func rewrite(to string) (_ string, inside bool) {
	u, err := url.Parse(to)
	if err != nil || u.Scheme != "" || u.Path == "" {
		return to, err == nil
	}
	if strings.Contains(u.Path, "/") || path.Ext(u.Path) != ".md" && path.Ext(u.Path) != ".html" {
		return "", false
	}
	u.Path = strings.TrimSuffix(u.Path, ".html")
	if strings.HasSuffix(u.Path, ".md") {
		u.Path = target(u.Path)
	} else {
		u.Path += ".html"
	}
	return u.String(), true
}

// unlink leaves the text of a link.
func unlink(n *ast.Link) {
	parent := n.Parent()
	for child := n.FirstChild(); child != nil; child = n.FirstChild() {
		parent.InsertBefore(parent, n, child)
	}
	parent.RemoveChild(parent, n)
}

// plain is the text of a node without its markup.
func plain(n ast.Node, source []byte) string {
	var b strings.Builder
	_ = ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if t, ok := n.(*ast.Text); ok && entering {
			b.Write(t.Value(source))
		}
		return ast.WalkContinue, nil
	})
	return b.String()
}
