package sse

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
)

func all(r *Reader) (events []Event, err error) {
	for {
		e, err := r.Next()
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return events, err
		}
		events = append(events, e)
	}
}

func TestReader(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 70<<10)
	for _, tt := range []struct {
		name, in string
		want     []Event
		err      error
	}{
		{name: "CRLF", in: "event: values\r\ndata: {\"a\":1}\r\nid: 5-0\r\n\r\n", want: []Event{{"values", "5-0", []byte(`{"a":1}`)}}},
		{name: "LF", in: "event: a\ndata: 1\n\nevent: b\ndata: 2\n\n", want: []Event{{"a", "", []byte("1")}, {"b", "", []byte("2")}}},
		{name: "CR", in: "event: a\rdata: 1\r\rdata: 2\r\r", want: []Event{{"a", "", []byte("1")}, {"", "", []byte("2")}}},
		{name: "mixed", in: "event: a\r\ndata: 1\n\rdata: 2\r\r\n", want: []Event{{"a", "", []byte("1")}, {"", "", []byte("2")}}},
		{name: "other separators stay", in: "data: a\u2028b\u0085c\vd\n\n", want: []Event{{"", "", []byte("a\u2028b\u0085c\vd")}}},
		{name: "several lines of data", in: "data: a\ndata\ndata:  b\n\n", want: []Event{{"", "", []byte("a\n\n b")}}},
		{name: "heartbeats", in: ": heartbeat\r\n\r\nevent: a\r\n: heartbeat\r\ndata: 1\r\n\r\n: heartbeat\r\n\r\n", want: []Event{{"a", "", []byte("1")}}},
		{name: "name alone", in: "event: end\n\n", want: []Event{{Name: "end"}}},
		{name: "retry alone", in: "retry: 5\n\nid: 1\n\n"},
		{name: "id with NUL", in: "id: a\x00b\ndata: 1\n\n", want: []Event{{"", "", []byte("1")}}},
		{name: "byte order mark", in: "\ufeffdata: 1\n\n", want: []Event{{"", "", []byte("1")}}},
		{name: "long line", in: "data: " + long + "\n\n", want: []Event{{"", "", []byte(long)}}},
		{name: "cut in a line", in: "data: 1\n\ndata: 2", want: []Event{{"", "", []byte("1")}}, err: io.ErrUnexpectedEOF},
		{name: "cut in an event", in: "data: 1\n\ndata: 2\n", want: []Event{{"", "", []byte("1")}}, err: io.ErrUnexpectedEOF},
		{name: "too long a line", in: "data: " + long + long + "\n\n", err: ErrTooLong},
		{name: "too many lines", in: strings.Repeat("data: "+long[:30<<10]+"\n", 4) + "\n", err: ErrTooLong},
		{name: "empty"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for name, in := range map[string]io.Reader{
				"whole": strings.NewReader(tt.in), "by bytes": iotest.OneByteReader(strings.NewReader(tt.in)), "by halves": iotest.HalfReader(strings.NewReader(tt.in)),
			} {
				got, err := all(NewReader(in, 100<<10))
				require.ErrorIs(t, err, tt.err, name)
				require.Empty(t, cmp.Diff(tt.want, got), name)
			}
		})
	}
}

// A connection that breaks is distinguished from one that ends.
func TestReaderError(t *testing.T) {
	t.Parallel()
	cut := errors.New("cut")
	r := NewReader(io.MultiReader(strings.NewReader("data: 1\n\ndata: 2\n"), iotest.ErrReader(cut)), 100)
	e, err := r.Next()
	require.NoError(t, err)
	require.Equal(t, "1", string(e.Data))
	_, err = r.Next()
	require.ErrorIs(t, err, cut)
}

func TestSplitName(t *testing.T) {
	t.Parallel()
	for name, want := range map[string][2]string{
		"values": {"values", ""}, "updates|a:1": {"updates", "a:1"}, "updates|a:1|b:2": {"updates", "a:1|b:2"}, "messages/partial": {"messages/partial", ""},
	} {
		mode, ns := SplitName(name)
		require.Equal(t, want, [2]string{mode, ns})
	}
}

// FuzzReader: however the bytes arrive, the same events come out, and none of them is beyond the limit.
func FuzzReader(f *testing.F) {
	f.Add([]byte("event: values\r\ndata: {}\r\nid: 1-0\r\n\r\n: heartbeat\r\n\r\n"))
	f.Add([]byte("data: a\rdata: b\r\rdata:c\n\n\ufeffid\n\n"))
	f.Add([]byte("\ufeffevent\n\n\r\n\rdata"))
	f.Fuzz(func(t *testing.T, in []byte) {
		const limit = 64
		whole, err1 := all(NewReader(bytes.NewReader(in), limit))
		bits, err2 := all(NewReader(iotest.OneByteReader(bytes.NewReader(in)), limit))
		if diff := cmp.Diff(whole, bits); diff != "" || !errors.Is(err1, err2) {
			t.Fatalf("whole: %v, by bytes: %v\n%s", err1, err2, diff)
		}
		for _, e := range whole {
			if len(e.Data)+len(e.Name)+len(e.ID) > limit || strings.ContainsAny(e.Name+e.ID, "\r\n") {
				t.Fatalf("%q", e)
			}
		}
	})
}
