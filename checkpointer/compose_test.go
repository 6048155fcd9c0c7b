package checkpointer

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

// write makes a write of the older `json` form, which is easier to read here.
func write(channel, text string) Write {
	return Write{TaskID: "t", Channel: channel, Type: "json", Data: []byte(text)}
}

func TestResult(t *testing.T) {
	t.Parallel()
	s := NewSnapshots(nil, nil)
	object := &shape{out: []string{"a", "b"}}
	bare := &shape{out: []string{"a"}, bare: true}
	for _, c := range []struct {
		name   string
		shape  *shape
		writes []Write
		want   string // "": null
	}{
		{"by channel, in the order of writing", object, []Write{write("b", "1"), write("branch:to:x", "null"), write("a", "2")}, `{"b":1,"a":2}`},
		{"nothing that is shown", object, []Write{write("__no_writes__", "null")}, `{}`},
		{"a channel twice", object, []Write{write("a", "1"), write("b", "2"), write("a", "3")}, `{"a":{"$writes":[1,3]},"b":2}`},
		{"a None before", object, []Write{write("a", "null"), write("a", "3")}, `{"a":3}`},
		{"a None after", object, []Write{write("a", "3"), write("a", "null")}, `{"a":{"$writes":[3,null]}}`},
		{"what it returned, alone", object, []Write{write("a", "1"), write("__return__", "[2]")}, `[2]`},
		{"one channel", bare, []Write{write("b", "1"), write("a", "2")}, `2`},
		{"one channel, twice", bare, []Write{write("a", "1"), write("a", "2")}, `{"$writes":[1,2]}`},
		{"one channel, nothing", bare, []Write{write("b", "1")}, ``},
		{"nobody knows the shape", nil, []Write{write("x", "1"), write("branch:to:y", "2"), write("__z__", "3")}, `{"x":1}`},
		{"a pickle", object, []Write{{TaskID: "t", Channel: "a", Type: "pickle", Data: []byte("x")}}, `{"a":null}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := progressOf(c.writes, "t")
			require.True(t, p.finished)
			require.Equal(t, c.want, string(s.result(p, c.shape)))
		})
	}
}

func TestInterrupts(t *testing.T) {
	t.Parallel()
	s := NewSnapshots(nil, nil)
	for _, c := range []struct{ name, stored, want string }{
		{"keys in the order of the API", `[{"value":{"q":1},"id":"x","response_schema":null}]`, `[{"id":"x","value":{"q":1}}]`},
		{"with a schema", `[{"value":1,"id":"x","response_schema":{"type":"object"}}]`, `[{"id":"x","value":1,"response_schema":{"type":"object"}}]`},
		{"several", `[{"value":1,"id":"x"},{"value":null,"id":"y"}]`, `[{"id":"x","value":1},{"id":"y","value":null}]`},
		{"no list", `{"value":1,"id":"x"}`, `[{"id":"x","value":1}]`},
		{"of an older LangGraph", `[{"value":1,"resumable":true,"ns":["a"],"when":"during"}]`, `[{"id":null,"value":1}]`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := json.Marshal(s.interrupts(progressOf([]Write{write("__interrupt__", c.stored)}, "t")))
			require.NoError(t, err)
			require.Equal(t, c.want, string(got))
		})
	}
}

func TestCheckpointMaps(t *testing.T) {
	t.Parallel()
	at := func(metadata string) *Tuple {
		return &Tuple{Checkpoint: Checkpoint{Key: Key{NS: "a:1|b:2", ID: "3"}, Parent: "2", Metadata: json.RawMessage(metadata)}}
	}
	own, parent := Maps(at(`{"parents": {"": "r", "a:1": "1"}}`))
	require.Equal(t, `{"":"r","a:1":"1","a:1|b:2":"3"}`, string(own))
	require.Equal(t, `{"":"r","a:1":"1","a:1|b:2":"2"}`, string(parent))
	for _, metadata := range []string{``, `{}`, `{"parents": {}}`, `{"parents": null}`} {
		own, parent := Maps(at(metadata))
		require.Nil(t, own)
		require.Nil(t, parent)
	}
}

func TestValuesOfAPickle(t *testing.T) {
	t.Parallel()
	s := NewSnapshots(nil, nil)
	tuple := &Tuple{
		Checkpoint: Checkpoint{Data: json.RawMessage(`{"channel_values":{"n":1.0,"s":"\u00e9\u0000","nan":NaN},"channel_versions":{"n":1,"s":"1","nan":"1","p":"1","gone":"2","__start__":"1","branch:to:x":"1"}}`)},
		Blobs:      []Blob{{Channel: "p", Version: "1", Type: "pickle", Data: []byte("x")}, {Channel: "gone", Version: "2", Type: "empty"}},
	}
	require.Equal(t, "{\"n\":1.0,\"s\":\"é\uFFFD\",\"nan\":null,\"p\":null}", string(s.valuesOf(tuple, content{})))
}
