package jsonplus

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"github.com/tinylib/msgp/msgp"
)

type row struct {
	Name string `json:"name"`
	Type string `json:"type"`
	Data []byte `json:"data"`
	JSON string `json:"json"`
}

// corpus is what testdata/gen.py wrote.
func corpus(t testing.TB) []row {
	t.Helper()
	raw, err := os.ReadFile("testdata/corpus.json")
	require.NoError(t, err)
	var rows []row
	require.NoError(t, json.Unmarshal(raw, &rows))
	return rows
}

func named(t testing.TB, name string) row {
	t.Helper()
	for _, r := range corpus(t) {
		if r.Name == name {
			return r
		}
	}
	t.Fatalf("no %s in the corpus", name)
	return row{}
}

func TestAppendJSON(t *testing.T) {
	t.Parallel()
	for _, r := range corpus(t) {
		t.Run(r.Name, func(t *testing.T) {
			t.Parallel()
			got, err := AppendJSON([]byte("before"), r.Type, r.Data)
			require.NoError(t, err)
			if diff := cmp.Diff("before"+r.JSON, string(got)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestAppendJSONRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, typ string
		data      []byte
		want      error
	}{
		{"a pickle", TypePickle, []byte("\x80\x05."), ErrPickle},
		{"deep lists without end", TypeMsgpack, bytes.Repeat([]byte{0x91}, 10_000_000), nil},
		{"deep maps without end", TypeMsgpack, bytes.Repeat([]byte{0x81, 0xa0}, 10_000), nil},
		{"deep keys without end", TypeMsgpack, bytes.Repeat([]byte{0x81}, 10_000), nil},
		{"deep json without end", TypeJSON, bytes.Repeat([]byte{'['}, 10_000), nil},
		{"unknown type", "yaml", nil, nil},
		{"nothing", TypeMsgpack, nil, nil},
		{"bytes after", TypeMsgpack, []byte{1, 2}, errTrailing},
		{"a short list", TypeMsgpack, []byte{0xdd, 0xff, 0xff, 0xff, 0xff, 1}, nil},
		{"broken json", TypeJSON, []byte(`{"a":`), errCorrupt},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := AppendJSON([]byte("kept"), c.typ, c.data)
			require.Error(t, err)
			if c.want != nil && !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
			require.Equal(t, "kept", string(got))
		})
	}
}

func TestIntegersBeyond64Bits(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"123456789012345678901234567890": "123456789012345678901234567890", "-98765432109876543210": "-98765432109876543210",
		"0": "0", "01": `"01"`, "-": `"-"`, "": `""`, "1e9": `"1e9"`, "12\"": `"12\""`,
	} {
		call := msgp.AppendArrayHeader(nil, 3)
		for _, s := range []string{"builtins", "int", text} {
			call = msgp.AppendString(call, s)
		}
		data, err := msgp.AppendExtension(nil, &msgp.RawExtension{Type: 0, Data: call})
		require.NoError(t, err)
		got, err := AppendJSON(nil, "msgpack", data)
		require.NoError(t, err)
		require.Equal(t, want, string(got))
	}
}

func TestBrokenExtensionIsNull(t *testing.T) {
	t.Parallel()
	data := []byte{0x92, 0xc7, 2, 5, 0xc1, 0xc1, 7} // [pydantic object of garbage, 7]
	got, err := AppendJSON(nil, TypeMsgpack, data)
	require.NoError(t, err)
	require.Equal(t, "[null,7]", string(got))
}

// A value nested too deeply is null; its siblings remain.
func TestDeepExtensionIsNull(t *testing.T) {
	t.Parallel()
	nested := []byte{0xc0}
	for range 5_000 { // delta snapshots in each other
		n := len(nested)
		nested = append([]byte{0xc9, byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n), extDelta}, nested...)
	}
	got, err := AppendJSON(nil, TypeMsgpack, append(append([]byte{0x93, 1}, nested...), 2))
	require.NoError(t, err)
	require.Equal(t, "[1,null,2]", string(got))
}

// A pickle within a value is never loaded: it becomes the JSON that a worker stored after it, if any, and its siblings remain.
func TestPickledLeaf(t *testing.T) {
	t.Parallel()
	const pickled = "\x80\x04N."
	for _, c := range []struct {
		name string
		rest []byte
		want string
	}{
		{"by LangGraph's rules alone", nil, "null"},
		{"as it was streamed", msgp.AppendBytes(nil, []byte(`{"a":[1]}`)), `{"a":[1]}`},
		{"no JSON", msgp.AppendBytes(nil, []byte(`{"a":`)), "null"},
		{"two", msgp.AppendBytes(nil, []byte(`1,2`)), "null"},
		{"nothing", msgp.AppendBytes(nil, nil), "null"},
		{"no bytes", msgp.AppendString(nil, "1"), "null"},
		{"cut off", []byte{0xc4, 200, '1'}, "null"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			call := msgp.AppendArrayHeader(nil, 4)
			call = msgp.AppendString(call, "pickle")
			call = msgp.AppendString(call, "loads")
			call = append(msgp.AppendBytes(call, []byte(pickled)), c.rest...)
			leaf, err := msgp.AppendExtension(nil, &msgp.RawExtension{Type: 0, Data: call})
			require.NoError(t, err)
			got, err := AppendJSON(nil, TypeMsgpack, append(append([]byte{0x93, 1}, leaf...), 2))
			require.NoError(t, err)
			require.Equal(t, "[1,"+c.want+",2]", string(got))
		})
	}
}

func TestSplitArray(t *testing.T) {
	t.Parallel()
	r := named(t, "conversation")
	items, err := SplitArray(r.Data)
	require.NoError(t, err)
	require.Len(t, items, 4)
	require.Equal(t, r.Data, append(msgp.AppendArrayHeader(nil, 4), bytes.Join(items, nil)...))
	for _, name := range []string{"human", "dict", "text", "int"} {
		_, err := SplitArray(named(t, name).Data)
		require.Error(t, err, name)
	}
	_, err = SplitArray(append([]byte{0x91}, 1, 2))
	require.ErrorIs(t, err, errTrailing)
	_, err = SplitArray([]byte{0xdd, 0xff, 0xff, 0xff, 0xff})
	require.Error(t, err)
	empty, err := SplitArray([]byte{0x90})
	require.NoError(t, err)
	require.Empty(t, empty)
}

func TestParseMessage(t *testing.T) {
	t.Parallel()
	plain := msgp.AppendMapHeader(nil, 3)
	for _, s := range []string{"type", "human", "content", "hello", "id", "x"} {
		plain = msgp.AppendString(plain, s)
	}
	for _, c := range []struct {
		name string
		item []byte
		want Message
		ok   bool
	}{
		{"human", named(t, "human").Data, Message{ID: "m1", HasID: true, Type: "human", Content: "hi"}, true},
		{"without id", named(t, "human_named").Data, Message{Type: "human", Content: "hi"}, true},
		{"blocks", named(t, "human_blocks").Data, Message{ID: "m2", HasID: true, Type: "human"}, true},
		{"a summary", named(t, "human_extra").Data, Message{Type: "human", Content: "hi", LCSource: "summarization"}, true},
		{"a chunk", named(t, "ai_chunk").Data, Message{ID: "c1", HasID: true, Type: "AIMessageChunk", Content: "par"}, true},
		{"a tool", named(t, "tool").Data, Message{ID: "t1", HasID: true, Type: "tool", Content: "found", ToolCallID: "call_1"}, true},
		{"a removal", named(t, "remove").Data, Message{ID: "m1", HasID: true, Type: "remove"}, true},
		{"a mapping", plain, Message{ID: "x", HasID: true, Type: "human", Content: "hello"}, true},
		{"a document", named(t, "document").Data, Message{}, false},
		{"a point", named(t, "pydantic").Data, Message{}, false},
		{"text", named(t, "text").Data, Message{}, false},
		{"a date", named(t, "date").Data, Message{}, false},
		{"nothing", nil, Message{}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, ok := ParseMessage(c.item)
			require.Equal(t, c.ok, ok)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func FuzzAppendJSON(f *testing.F) {
	for _, r := range corpus(f) {
		f.Add(r.Type, r.Data)
	}
	f.Fuzz(func(t *testing.T, typ string, data []byte) {
		got, err := AppendJSON(nil, typ, data)
		if err == nil && !json.Valid(got) {
			t.Errorf("%s %x: no JSON: %s", typ, data, got)
		}
		// What is shown must be in proportion to what is stored: hostile rows are not to fill memory.
		if len(got) > 1000*len(data)+10_000 {
			t.Errorf("%s %x: %d bytes of JSON", typ, data, len(got))
		}
		if items, err := SplitArray(data); err == nil {
			for _, item := range items {
				ParseMessage(item)
			}
		}
		ParseMessage(data)
	})
}

func TestAppendJSONAllocatesNothing(t *testing.T) {
	dst := make([]byte, 0, 1<<16)
	for _, name := range []string{"conversation", "datetime", "date", "time_offset", "timedelta", "uuid", "paths", "sends", "text_escapes", "floats"} {
		if name == "floats" {
			name = "inf"
		}
		r := named(t, name)
		if n := testing.AllocsPerRun(20, func() { _, _ = AppendJSON(dst, r.Type, r.Data) }); n > 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func BenchmarkAppendJSON(b *testing.B) {
	r := named(b, "conversation")
	items, err := SplitArray(r.Data)
	require.NoError(b, err)
	for _, n := range []int{4, 400} {
		data := msgp.AppendArrayHeader(nil, uint32(n))
		for i := range n {
			data = append(data, items[i%4]...)
		}
		b.Run(strconv.Itoa(n)+" messages", func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(data)))
			var dst []byte
			for b.Loop() {
				if dst, err = AppendJSON(dst[:0], TypeMsgpack, data); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func FuzzParseMessage(f *testing.F) {
	f.Add([]byte{0x82, 0xa4, 't', 'y', 'p', 'e', 0xa2, 'a', 'i', 0xa7, 'c', 'o', 'n', 't', 'e', 'n', 't', 0xa0})
	f.Add([]byte{0xc7, 1, 5, 0x90})
	f.Add([]byte{0xdf, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(_ *testing.T, item []byte) {
		ParseMessage(item)
		DeltaSnapshot(item)
	})
}

func TestPack(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		typ, data, want string
		err             error
	}{
		{typ: TypeMsgpack, data: "\x91\x01", want: "\x91\x01"},
		{typ: TypeJSON, data: `[1]`, want: "\x91\x01"},
		{typ: TypeNull, want: "\xc0"},
		{typ: TypeBytes, data: "x", want: "\xc4\x01x"},
		{typ: TypeBytearray, data: "x", want: "\xc4\x01x"},
		{typ: TypePickle, data: "x", err: ErrPickle},
		{typ: "empty", err: ErrType},
	} {
		got, err := Pack(tt.typ, []byte(tt.data))
		require.ErrorIs(t, err, tt.err, tt.typ)
		require.Equal(t, tt.want, string(got), tt.typ)
	}
	_, err := Pack(TypeJSON, []byte("["))
	require.Error(t, err)
}
