package markdown

import (
	"archive/zip"
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/deerflow/files"
)

// TestMain lets the test binary be the program that converts.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == Command {
		maxPageTime = 2 * time.Second // documents that hang need not hang for long
		os.Exit(Main(os.Args[2], os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

func word(t *testing.T, name, body string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	w, err := z.Create(name)
	require.NoError(t, err)
	_, err = w.Write([]byte(`<w:document xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"><w:body>` + body + `</w:body></w:document>`))
	require.NoError(t, err)
	require.NoError(t, z.Close())
	return b.Bytes()
}

// What cannot be converted says why, in a short line that a person may see.
func TestDocumentsWithoutText(t *testing.T) {
	t.Parallel()
	convert := Converter(os.Args[0])
	for name, c := range map[string]struct {
		file    string
		content []byte
		want    string // part of the reason; "": it is converted
	}{
		"Word":           {"a.docx", word(t, "word/document.xml", `<w:p><w:r><w:t>Hello</w:t></w:r></w:p>`), ""},
		"no text":        {"a.DOCX", word(t, "word/document.xml", ``), "the document has no text"},
		"no Word":        {"a.docx", word(t, "other", ``), "word/document.xml"},
		"no archive":     {"a.xlsx", []byte("what is this"), "zip"},
		"no PDF":         {"a.pdf", []byte("\x00\xff\xfe no document at all"), "PDF"},
		"old":            {"a.Doc", []byte("x"), `documents of type ".doc" cannot be converted`},
		"empty":          {"a.pptx", nil, "zip"},
		"no letters":     {"a.pdf", append([]byte("%PDF-1.4\n"), bytes.Repeat([]byte{0xff, '\n'}, 1000)...), " "},
		"another format": {"a.pdf", word(t, "word/document.xml", `x`), "PDF"},
	} {
		at := filepath.Join(t.TempDir(), "d")
		require.NoError(t, os.WriteFile(at, c.content, 0o600))
		document, err := os.Open(at)
		require.NoError(t, err)
		var out bytes.Buffer
		err = convert(t.Context(), document, c.file, &out)
		require.NoError(t, document.Close())
		if c.want == "" {
			require.NoError(t, err, name)
			require.Equal(t, "Hello", strings.TrimSpace(out.String()))
			continue
		}
		var none *files.NoText
		require.ErrorAs(t, err, &none, name)
		require.Contains(t, none.Reason, c.want, name)
		require.NotContains(t, none.Reason, "\n", name)
		require.Less(t, len(none.Reason), 220, name)
	}
	for range 20 { // there is a slot and an end: either may be seen first
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		var none *files.NoText
		require.NotErrorAs(t, convert(ctx, os.Stdin, "a.pdf", &bytes.Buffer{}), &none) // that says nothing of the document
	}
}
