package markdown

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/ledongthuc/pdf"
)

// Bounds of a PDF. Pages are leaves of a tree, and what a damaged or hostile document has there can lead back to itself.
const (
	maxPages    = 10_000 // with the inner nodes of the tree
	maxPageTree = 64     // levels
)

// maxPageTime is how long a page may take. Tests have less.
var maxPageTime = 10 * time.Second

var errPages = errors.New("its pages lead back to themselves, or are too many")

// pdfText writes the text of the pages of a PDF.
func pdfText(r io.ReaderAt, size int64, w *writer) error {
	// Other references, such as those to parents, can lead back to themselves as well, and the reader follows them.
	stuck := time.AfterFunc(maxPageTime, func() { w.end(fmt.Sprintf("a page of it takes longer than %s", maxPageTime)) })
	defer stuck.Stop()
	doc, err := pdf.NewReader(r, size)
	if err != nil {
		return err
	}
	left := maxPages
	return eachPage(doc.Trailer().Key("Root").Key("Pages"), 0, &left, func(page pdf.Page) error {
		stuck.Reset(maxPageTime)
		text, err := page.GetPlainText(nil) // fonts have the same names on other pages
		if err != nil {
			return err
		}
		if text = strings.TrimSpace(text); text == "" {
			return nil
		}
		return w.line(text)
	})
}

// eachPage calls do with the pages below a node of the tree, in order. left counts the nodes down.
func eachPage(node pdf.Value, depth int, left *int, do func(pdf.Page) error) error {
	if *left--; *left < 0 || depth > maxPageTree {
		return errPages
	}
	kids := node.Key("Kids")
	if kids.Kind() != pdf.Array {
		if node.Kind() != pdf.Dict {
			return nil
		}
		return do(pdf.Page{V: node})
	}
	for i := range kids.Len() {
		if err := eachPage(kids.Index(i), depth+1, left, do); err != nil {
			return err
		}
	}
	return nil
}
