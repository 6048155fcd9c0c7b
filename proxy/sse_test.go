package proxy

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"understudy/eventstore/overlay"
)

// pieces returns its text in pieces of these lengths, then the rest.
type pieces struct {
	text    string
	lengths []byte
}

func (p *pieces) Read(b []byte) (int, error) {
	if p.text == "" {
		return 0, io.EOF
	}
	n := len(p.text)
	if len(p.lengths) > 0 {
		n = int(p.lengths[0])%16 + 1
		p.lengths = p.lengths[1:]
	}
	n = copy(b, p.text[:min(n, len(p.text))])
	p.text = p.text[n:]
	return n, nil
}

func plenty() *held { return &held{of: &budget{limit: 1 << 30}} }

func passed(t *testing.T, src io.Reader, limit int, each func(string, []byte) ([]byte, overlay.Fate)) string {
	t.Helper()
	e := newEvents(io.NopCloser(src), limit, plenty(), each)
	b, err := io.ReadAll(e)
	require.NoError(t, err)
	require.NoError(t, e.Close())
	return string(b)
}

// verdict is a function that changes, hides, holds and keeps.
func verdict(_ string, data []byte) ([]byte, overlay.Fate) {
	switch {
	case bytes.Contains(data, []byte("hide both")):
		return nil, overlay.HiddenBoth
	case bytes.Contains(data, []byte("hide")):
		return nil, overlay.Hidden
	case bytes.Contains(data, []byte("hold")):
		return nil, overlay.Held
	case bytes.Contains(data, []byte("change")):
		return bytes.ReplaceAll(data, []byte("change"), []byte("it was changed")), overlay.Shown
	}
	return data, overlay.Shown
}

func TestEvents(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, in, want string }{
		{name: "as LangGraph Server writes them", in: "event: values\r\ndata: {\"a\":1}\r\nid: 1-0\r\n\r\n: heartbeat\r\n\r\nevent: end\r\ndata: null\r\n\r\n"},
		{name: "line feeds", in: "event: a\ndata: 1\n\ndata:2\n\n"},
		{name: "carriage returns", in: "event: a\rdata: 1\r\rdata:2\r\r"},
		{name: "line ends mixed", in: "event: a\rdata: 1\ndata: 2\r\n\r\rretry: 5\n\r\n"},
		{name: "changed", in: "id: 7\r\nevent: values\r\ndata: change\r\n: c\r\n\r\nx", want: "id: 7\r\nevent: values\r\ndata: it was changed\r\n: c\r\n\r\nx"},
		{name: "changed, no space", in: "data:change\n\n", want: "data:it was changed\n\n"},
		{name: "changed, several lines", in: "data: a\r\ndata: change\r\nid: 1\r\ndata: b\r\n\r\n", want: "data: a\r\ndata: it was changed\r\ndata: b\r\nid: 1\r\n\r\n"},
		{name: "hidden with its id", in: "data: 1\nid: 1\n\ndata: hide\nid: 2\n\ndata: 3\nid: 3\n\n", want: "data: 1\nid: 1\n\ndata: 3\nid: 3\n\n"},
		{name: "hidden, first and last", in: "data: hide\r\n\r\ndata: hide\r\n\r\n", want: ""},
		{name: "held, then shown", in: "event: m\r\ndata: hold\r\nid: 1\r\n\r\ndata: 2\r\n\r\n"},
		{name: "held, then changed", in: "data: hold\n\ndata: change\n\n", want: "data: hold\n\ndata: it was changed\n\n"},
		{name: "held, then hidden", in: "data: hold\n\ndata: hide both\n\ndata: 3\n\n", want: "data: 3\n\n"},
		{name: "held, then hidden alone", in: "data: hold\n\ndata: hide\n\ndata: 3\n\n", want: "data: hold\n\ndata: 3\n\n"},
		{name: "held, a comment in between", in: "data: hold\n\n: heartbeat\n\ndata: hide both\n\n", want: ": heartbeat\n\n"},
		{name: "held several times", in: "data: 0\n\ndata: hold 1\n\ndata: hold 2\n\ndata: hide both\n\n", want: "data: 0\n\ndata: hold 1\n\n"},
		{name: "held at the end", in: "data: hold\r\n\r\n"},
		{name: "held, what follows is no whole event", in: "data: hold\n\ndata: 1"},
		{name: "hidden, carriage returns", in: "data: hide\r\rdata: x\r\r", want: "data: x\r\r"},
		{name: "other line ends are content", in: "data: a\u2028b\u2029c\u0085d\x0b\x0c\n\n"},
		{name: "byte order mark", in: "\ufeffdata: hide\n\ndata: x\n\n", want: "\ufeffdata: x\n\n"},
		{name: "no name, no value", in: "data\n\ndata:\n\n:\n\n: hide\n\nhide: 1\n\n"},
		{name: "an event that is no whole one", in: "data: 1\n\ndata: hide"},
		{name: "blank lines", in: "\n\r\n\r\n\n\r"},
		{name: "nothing", in: ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if tt.want == "" && !strings.Contains(tt.name, "hidden") {
				tt.want = tt.in
			}
			require.Equal(t, tt.want, passed(t, strings.NewReader(tt.in), 1<<20, verdict), "in one piece")
			require.Equal(t, tt.want, passed(t, iotest.OneByteReader(strings.NewReader(tt.in)), 1<<20, verdict), "byte by byte")
		})
	}
}

// What is asked of an event: its name and its data, lines joined.
func TestEventsAsked(t *testing.T) {
	t.Parallel()
	var got []string
	passed(t, strings.NewReader("event: values\ndata: 1\n\ndata: a\ndata:  b\ndata\n\n: c\n\nevent: x\n\nevent: y\nevent: messages|sub\ndata:z\r\n\r\n"), 1<<20, func(event string, data []byte) ([]byte, overlay.Fate) {
		got = append(got, event+"="+string(data))
		return data, overlay.Shown
	})
	require.Equal(t, []string{"values=1", "message=a\n b\n", "messages|sub=z"}, got)
}

// An event goes out with the byte that ends it, although the source has no more.
func TestEventsAreNotHeldBack(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"\n\n", "\r\n\r\n", "\r\r"} {
		in, out := io.Pipe()
		e := newEvents(in, 1<<20, plenty(), verdict)
		for i := range 3 {
			want := fmt.Sprintf("data: %d%s", i, end)
			go func() { _, _ = io.WriteString(out, want) }()
			b := make([]byte, len(want))
			_, err := io.ReadFull(e, b)
			require.NoError(t, err)
			require.Equal(t, want, string(b))
		}
		require.NoError(t, e.Close())
	}
}

func TestEventsTooLong(t *testing.T) {
	t.Parallel()
	in := "data: hide\n\ndata: " + strings.Repeat("x", 20_000) + "\n\ndata: hide\n\n"
	require.Equal(t, in[len("data: hide\n\n"):], passed(t, strings.NewReader(in), 10_000, verdict), "raw from there on")
	long := "data: change " + strings.Repeat("x", 200_000) + "\n\n"
	require.Equal(t, strings.ReplaceAll(long+long, "change", "it was changed"), passed(t, strings.NewReader(long+long), 1<<20, verdict))
}

func TestEventsCut(t *testing.T) {
	t.Parallel()
	broken := fmt.Errorf("broken")
	e := newEvents(io.NopCloser(io.MultiReader(strings.NewReader("data: 1\n\ndata: 2"), iotest.ErrReader(broken))), 1<<20, plenty(), verdict)
	b, err := io.ReadAll(e)
	require.Equal(t, "data: 1\n\ndata: 2", string(b))
	require.ErrorIs(t, err, broken)
}

// FuzzEvents: the output does not depend on how bytes are split, and unchanged events are byte for byte the input.
func FuzzEvents(f *testing.F) {
	f.Add("event: values\r\ndata: {}\r\nid: 1\r\n\r\n: heartbeat\r\n\r\ndata: hide\n\ndata: change\r\r", []byte{3, 1, 200, 7})
	f.Add("data: hide\r\n\r\ndata: change\rdata: x\n\n\r\n", []byte{11, 0, 0, 0})
	f.Add("\ufeffdata: hide\r\r\n\n", []byte{13, 0})
	f.Add("data: hold\r\n\r\n: c\r\n\r\ndata: hide both\r\n\r\ndata: hold\n\ndata: change", []byte{11, 0, 0, 0})
	f.Fuzz(func(t *testing.T, in string, lengths []byte) {
		keep := func(_ string, data []byte) ([]byte, overlay.Fate) { return data, overlay.Shown }
		require.Equal(t, in, passed(t, &pieces{in, lengths}, 1<<20, keep))
		require.Equal(t, in, passed(t, &pieces{in, lengths}, 40, keep))
		hold := func(_ string, data []byte) ([]byte, overlay.Fate) { return data, overlay.Held }
		require.Len(t, passed(t, &pieces{in, lengths}, 1<<20, hold), len(in), "held events are shown, in their order")
		whole := passed(t, strings.NewReader(in), 1<<20, verdict)
		require.Equal(t, whole, passed(t, &pieces{in, lengths}, 1<<20, verdict))
		require.Equal(t, whole, passed(t, iotest.OneByteReader(strings.NewReader(in)), 1<<20, verdict))
		// With all events hidden, what is left has none.
		none := passed(t, strings.NewReader(in), 1<<20, func(string, []byte) ([]byte, overlay.Fate) { return nil, overlay.Hidden })
		passed(t, strings.NewReader(none), 1<<20, func(event string, data []byte) ([]byte, overlay.Fate) {
			t.Errorf("event %q %q was hidden and is still there", event, data)
			return data, overlay.Shown
		})
	})
}

func TestEventsDoNotAllocate(t *testing.T) {
	event := "event: messages\r\ndata: [{\"content\":\"" + strings.Repeat("x", 300) + "\"},{}]\r\n\r\n"
	e := newEvents(io.NopCloser(&endless{event: event}), 1<<20, plenty(), func(_ string, data []byte) ([]byte, overlay.Fate) { return data, overlay.Shown })
	b := make([]byte, copyBuffer)
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		for range 10 {
			_, _ = e.Read(b)
		}
	}))
	require.NoError(t, e.Close())
}

// endless repeats an event.
type endless struct {
	event string
	at    int
}

func (r *endless) Read(p []byte) (int, error) {
	n := copy(p, r.event[r.at:])
	r.at = (r.at + n) % len(r.event)
	return n, nil
}

func BenchmarkEvents(b *testing.B) {
	event := "event: messages\r\ndata: [{\"content\":\"" + strings.Repeat("x", 900) + "\"},{}]\r\n\r\n"
	e := newEvents(io.NopCloser(&endless{event: event}), 1<<20, plenty(), func(_ string, data []byte) ([]byte, overlay.Fate) { return data, overlay.Shown })
	buf := make([]byte, copyBuffer)
	b.ReportAllocs()
	b.SetBytes(int64(len(event)))
	for b.Loop() {
		for n := 0; n < len(event); {
			m, _ := e.Read(buf)
			n += m
		}
	}
	require.NoError(b, e.Close())
}
