package markdown

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// document returns a PDF of these objects, of which the first is its root.
func document(objects ...string) []byte {
	var b bytes.Buffer
	b.WriteString("%PDF-1.4\n")
	var places []int
	for i, o := range objects {
		places = append(places, b.Len())
		fmt.Fprintf(&b, "%d 0 obj\n%s\nendobj\n", i+1, o)
	}
	at := b.Len()
	fmt.Fprintf(&b, "xref\n0 %d\n0000000000 65535 f \n", len(objects)+1)
	for _, place := range places {
		fmt.Fprintf(&b, "%010d 00000 n \n", place)
	}
	fmt.Fprintf(&b, "trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n", len(objects)+1, at)
	return b.Bytes()
}

const root = "<< /Type /Catalog /Pages 2 0 R >>"

func stream(dict, content string) string {
	return fmt.Sprintf("<< %s /Length %d >>\nstream\n%s\nendstream", dict, len(content), content)
}

// convertPDF returns the text of a document, or why it has none.
func convertPDF(t *testing.T, content []byte) (text string, err error) {
	t.Helper()
	at := filepath.Join(t.TempDir(), "a.pdf")
	require.NoError(t, os.WriteFile(at, content, 0o600))
	f, err := os.Open(at)
	require.NoError(t, err)
	defer f.Close()
	var out bytes.Buffer
	err = Converter(os.Args[0])(t.Context(), f, "a.pdf", &out)
	return out.String(), err
}

// looped returns a PDF whose root is in a stream of objects that extends itself, and does not have it.
func looped() []byte {
	var b bytes.Buffer
	b.WriteString("%PDF-1.5\n")
	at := b.Len()
	fmt.Fprintf(&b, "3 0 obj\n%s\nendobj\n", stream("/Type /ObjStm /N 0 /First 1 /Extends 3 0 R", "x"))
	table := b.Len()
	var entries bytes.Buffer
	for _, e := range [][3]int{{0, 0, 0}, {2, 3, 0}, {0, 0, 0}, {1, at, 0}, {1, table, 0}} {
		entries.WriteByte(byte(e[0]))
		_ = binary.Write(&entries, binary.BigEndian, uint32(e[1]))
		entries.WriteByte(byte(e[2]))
	}
	fmt.Fprintf(&b, "4 0 obj\n%s\nendobj\nstartxref\n%d\n%%%%EOF\n", stream("/Type /XRef /Size 5 /W [1 4 1] /Root 1 0 R", entries.String()), table)
	return b.Bytes()
}

// Pages of a tree come in order, whatever their number is said to be, and each has the fonts that it names.
func TestPagesOfPDF(t *testing.T) {
	t.Parallel()
	// The font F of the second page writes A where codes say B.
	page := func(content, font int) string {
		return fmt.Sprintf("<< /Type /Page /Parent 3 0 R /Contents %d 0 R /Resources << /Font << /F %d 0 R >> >> >>", content, font)
	}
	cmap := "begincmap\n1 begincodespacerange\n<00> <ff>\nendcodespacerange\n1 beginbfchar\n<42> <0041>\nendbfchar\nendcmap"
	text, err := convertPDF(t, document(root,
		"<< /Type /Pages /Count 1000000000 /Kids [3 0 R 10 0 R] >>",
		"<< /Type /Pages /Parent 2 0 R /Count 2 /Kids [4 0 R 5 0 R] >>",
		page(6, 7), page(6, 8),
		stream("", "BT /F 12 Tf (B) Tj ET"),
		"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
		"<< /Type /Font /Subtype /Type1 /BaseFont /Other /ToUnicode 9 0 R >>",
		stream("", cmap),
		"<< /Type /Page /Parent 2 0 R /Contents 11 0 R /Resources << >> >>",
		stream("", "BT (last) Tj ET"),
	))
	require.NoError(t, err)
	require.Equal(t, []string{"B", "A", "last"}, strings.Fields(text))
}

// References that lead back to themselves end the conversion, and soon: others wait for their turn.
func TestLoopsOfPDF(t *testing.T) {
	t.Parallel()
	page := "<< /Type /Page /Parent 2 0 R /Contents 4 0 R /Resources << >> >>"
	content := stream("", "BT (x) Tj ET")
	wide := strings.Repeat("3 0 R ", maxPages)
	for name, content := range map[string][]byte{
		"to itself":         document(root, "<< /Type /Pages /Count 1000000 /Kids [2 0 R] >>"),
		"twice to itself":   document(root, "<< /Type /Pages /Count 1000000 /Kids [2 0 R 2 0 R] >>"),
		"behind a page":     document(root, "<< /Type /Pages /Count 1000000 /Kids [3 0 R 2 0 R] >>", page, content),
		"of two":            document(root, "<< /Type /Pages /Count 1000000 /Kids [3 0 R] >>", "<< /Type /Pages /Count 1000000 /Kids [2 0 R] >>"),
		"of parents":        document(root, "<< /Type /Pages /Count 1 /Kids [3 0 R] >>", "<< /Type /Page /Parent 3 0 R /Contents 4 0 R >>", content),
		"too many pages":    document(root, "<< /Type /Pages /Count 1 /Kids [3 0 R 3 0 R "+wide+"] >>", page, content),
		"of object streams": looped(),
	} {
		began := time.Now()
		_, err := convertPDF(t, content)
		require.ErrorContains(t, err, "page", name)
		require.Less(t, time.Since(began), timeout/2, name)
	}
}
