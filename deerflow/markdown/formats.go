package markdown

import (
	"archive/zip"
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/xuri/excelize/v2"
)

// formats are the types that can be converted.
var formats = map[string]func(r io.ReaderAt, size int64, w *writer) error{
	".docx": docx,
	".pptx": pptx,
	".xlsx": xlsx,
	".pdf":  pdfText,
}

const (
	maxPart  = 64 << 20 // bytes of one part of a document, unpacked
	maxCells = 200_000
)

// errFull: as much was written as there may be.
var errFull = errors.New("the text is too long")

// writer collects Markdown.
type writer struct {
	bytes.Buffer
	left int
	end  func(reason string) // ends the process, which some documents keep busy forever
}

// line writes a line and an empty one.
func (w *writer) line(text string) error { return w.add(text + "\n\n") }

func (w *writer) add(text string) error {
	if len(text) > w.left {
		return errFull
	}
	w.left -= len(text)
	w.WriteString(text)
	return nil
}

// part opens a part of a document that is a ZIP archive.
func part(z *zip.Reader, name string) (io.ReadCloser, error) {
	f, err := z.Open(name)
	if err != nil {
		return nil, fmt.Errorf("read %s of the document: %w", name, err)
	}
	return struct {
		io.Reader
		io.Closer
	}{io.LimitReader(f, maxPart), f}, nil
}

// docx writes the paragraphs of a Word document; headings, lists and tables as such.
func docx(r io.ReaderAt, size int64, w *writer) error {
	z, err := zip.NewReader(r, size)
	if err != nil {
		return err
	}
	f, err := part(z, "word/document.xml")
	if err != nil {
		return err
	}
	defer f.Close()
	d := &wordReader{dec: xml.NewDecoder(f), w: w}
	return d.read()
}

// wordReader walks the XML of a Word document.
type wordReader struct {
	dec *xml.Decoder
	w   *writer

	text  strings.Builder // of the current paragraph
	style string
	list  bool
	row   []string // cells of the current row of a table; nil outside of one
	rows  int      // of the current table
	depth int      // of tables
}

func (d *wordReader) read() error {
	for {
		t, err := d.dec.Token()
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		switch t := t.(type) {
		case xml.StartElement:
			if err := d.begin(t); err != nil {
				return err
			}
		case xml.EndElement:
			if err := d.end(t.Name.Local); err != nil {
				return err
			}
		}
	}
}

func (d *wordReader) begin(t xml.StartElement) error {
	switch t.Name.Local {
	case "p":
		if d.depth == 0 || d.text.Len() == 0 {
			d.text.Reset()
		} else {
			d.text.WriteByte(' ') // paragraphs of one cell
		}
		d.style, d.list = "", false
	case "pStyle":
		d.style = attr(t, "val")
	case "numPr":
		d.list = true
	case "tab":
		d.text.WriteByte(' ')
	case "br":
		d.text.WriteByte('\n')
	case "t":
		var s string
		if err := d.dec.DecodeElement(&s, &t); err != nil {
			return err
		}
		d.text.WriteString(s)
	case "tbl":
		d.depth++
		d.rows = 0
	case "tr":
		d.row = []string{}
	case "tc":
		d.text.Reset()
	}
	return nil
}

func (d *wordReader) end(name string) error {
	switch name {
	case "p":
		text := strings.TrimSpace(d.text.String())
		if d.depth > 0 || text == "" {
			return nil
		}
		if n := heading(d.style); n > 0 {
			text = strings.Repeat("#", n) + " " + text
		} else if d.list {
			text = "- " + text
		}
		return d.w.line(text)
	case "tc":
		d.row = append(d.row, cell(d.text.String()))
		d.text.Reset()
	case "tr":
		d.rows++
		return d.w.tableRow(d.row, d.rows == 1)
	case "tbl":
		d.depth--
		return d.w.add("\n")
	}
	return nil
}

func attr(t xml.StartElement, name string) string {
	for _, a := range t.Attr {
		if a.Name.Local == name {
			return a.Value
		}
	}
	return ""
}

// heading returns the level of a style; 0 for what is no heading.
func heading(style string) int {
	style = strings.ToLower(style)
	if style == "title" {
		return 1
	}
	rest, ok := strings.CutPrefix(style, "heading")
	n, err := strconv.Atoi(rest)
	if !ok || err != nil || n < 1 || n > 6 {
		return 0
	}
	return n
}

// cell returns text as it can stand in a table.
func cell(text string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "|", `\|`)
}

// tableRow writes one row of a table.
func (w *writer) tableRow(cells []string, first bool) error {
	if len(cells) == 0 {
		return nil
	}
	text := "| " + strings.Join(cells, " | ") + " |\n"
	if first {
		text += "|" + strings.Repeat(" --- |", len(cells)) + "\n"
	}
	return w.add(text)
}

// pptx writes the texts of the slides of a presentation, in order.
func pptx(r io.ReaderAt, size int64, w *writer) error {
	z, err := zip.NewReader(r, size)
	if err != nil {
		return err
	}
	type slide struct {
		n    int
		name string
	}
	var slides []slide
	for _, f := range z.File {
		if ok, _ := path.Match("ppt/slides/slide*.xml", f.Name); ok {
			n, err := strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(f.Name, "ppt/slides/slide"), ".xml"))
			if err == nil {
				slides = append(slides, slide{n, f.Name})
			}
		}
	}
	slices.SortFunc(slides, func(a, b slide) int { return a.n - b.n })
	for _, s := range slides {
		if err := w.line(fmt.Sprintf("## Slide %d", s.n)); err != nil {
			return err
		}
		if err := slideText(z, s.name, w); err != nil {
			return err
		}
	}
	return nil
}

// slideText writes the paragraphs of one slide.
func slideText(z *zip.Reader, name string, w *writer) error {
	f, err := part(z, name)
	if err != nil {
		return err
	}
	defer f.Close()
	dec := xml.NewDecoder(f)
	var text strings.Builder
	for {
		t, err := dec.Token()
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		switch t := t.(type) {
		case xml.StartElement:
			if t.Name.Local == "t" {
				var s string
				if err := dec.DecodeElement(&s, &t); err != nil {
					return err
				}
				text.WriteString(s)
			}
		case xml.EndElement:
			if line := strings.TrimSpace(text.String()); t.Name.Local == "p" && line != "" {
				if err := w.line(line); err != nil {
					return err
				}
			}
			if t.Name.Local == "p" {
				text.Reset()
			}
		}
	}
}

// xlsx writes the sheets of a workbook as tables.
func xlsx(r io.ReaderAt, size int64, w *writer) error {
	book, err := excelize.OpenReader(io.NewSectionReader(r, 0, size), excelize.Options{UnzipSizeLimit: 8 * maxPart, UnzipXMLSizeLimit: maxPart})
	if err != nil {
		return err
	}
	defer book.Close()
	cells := 0
	for _, name := range book.GetSheetList() {
		if err := w.line("## " + name); err != nil {
			return err
		}
		rows, err := book.Rows(name)
		if err != nil {
			return err
		}
		for first := true; rows.Next(); first = false {
			row, err := rows.Columns()
			if err != nil {
				return errors.Join(err, rows.Close())
			}
			for i := range row {
				row[i] = cell(row[i])
			}
			if cells += len(row); cells > maxCells {
				return errors.Join(errFull, rows.Close())
			}
			if err := w.tableRow(row, first); err != nil {
				return errors.Join(err, rows.Close())
			}
		}
		if err := errors.Join(rows.Error(), rows.Close(), w.add("\n")); err != nil {
			return err
		}
	}
	return nil
}
