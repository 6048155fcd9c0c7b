package mirror

import (
	"bytes"
	"io"
	"os"
	"strconv"
	"strings"

	"understudy/eventstore"
	"understudy/id"
)

// fileName is the id of the thread, percent-encoded: all but letters, digits, hyphens and underscores.
func fileName(t id.Thread) string {
	const digits = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(t) {
		switch c := t[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '_':
			b.WriteByte(c)
		default:
			b.WriteByte('%')
			b.WriteByte(digits[c>>4])
			b.WriteByte(digits[c&15])
		}
	}
	return b.String() + ".jsonl"
}

// repair truncates a file to the rows that are certainly complete, and returns the offset of its end.
func repair(f *os.File, size int64, o eventstore.Offset) (eventstore.Offset, error) {
	at, err := endsWith(f, size, o)
	if err != nil {
		return o, err
	}
	if !at {
		o, err = lastRow(f, size, o)
		if err != nil {
			return o, err
		}
	}
	if size == o.Position {
		return o, nil
	}
	return o, f.Truncate(o.Position)
}

// endsWith reports whether the stored last row ends at the stored position.
func endsWith(f *os.File, size int64, o eventstore.Offset) (bool, error) {
	if o.Position == 0 || o.Position > size {
		return o.Position == 0 && o.Seq == 0, nil
	}
	seq, err := rowBefore(f, o.Position)
	return seq == o.Seq && seq != 0, err
}

// lastRow returns the offset of the last complete row, or that of an empty file if there is none that the log can have written so
// far.
func lastRow(f *os.File, size int64, o eventstore.Offset) (eventstore.Offset, error) {
	none := eventstore.Offset{Thread: o.Thread, Created: o.Created}
	end, err := lineStart(f, size)
	if err != nil || end == 0 {
		return none, err
	}
	seq, err := rowBefore(f, end)
	if err != nil || seq == 0 || seq > o.Seq {
		return none, err
	}
	o.Seq, o.Position = seq, end
	return o, nil
}

// rowBefore returns the seq of the row that ends at pos, its line break included; 0 when no row does.
func rowBefore(f *os.File, pos int64) (eventstore.Seq, error) {
	var last [1]byte
	if _, err := f.ReadAt(last[:], pos-1); err != nil {
		return 0, err
	}
	if last[0] != '\n' {
		return 0, nil
	}
	start, err := lineStart(f, pos-1)
	if err != nil {
		return 0, err
	}
	head := make([]byte, min(pos-start, 32))
	if _, err := f.ReadAt(head, start); err != nil {
		return 0, err
	}
	rest, ok := bytes.CutPrefix(head, []byte(`{"seq":`))
	digits, _, comma := bytes.Cut(rest, []byte(","))
	n, err := strconv.ParseInt(string(digits), 10, 64)
	if !ok || !comma || err != nil {
		return 0, nil
	}
	return eventstore.Seq(n), nil
}

// lineStart returns the start of the line that contains or ends at pos: the position after the last line break before pos.
func lineStart(f *os.File, pos int64) (int64, error) {
	buf := make([]byte, 64<<10)
	for pos > 0 {
		n := min(pos, int64(len(buf)))
		if _, err := f.ReadAt(buf[:n], pos-n); err != nil && err != io.EOF {
			return 0, err
		}
		if i := bytes.LastIndexByte(buf[:n], '\n'); i >= 0 {
			return pos - n + int64(i) + 1, nil
		}
		pos -= n
	}
	return 0, nil
}
