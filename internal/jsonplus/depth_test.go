package jsonplus

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tinylib/msgp/msgp"
)

// nested is a value of which a random place is nested so deep that it is near the bound or far beyond, in all the forms in which values are stored.
type nested struct {
	rnd *rand.Rand
	n   int // siblings so far: each is a text of its own
}

// forms are a value as it is stored and as it shows.
type forms struct {
	packed []byte
	json   string // also the older form
}

func (g *nested) mark() forms {
	g.n++
	text := fmt.Sprintf("s%d]}[{\"", g.n)
	quoted, _ := json.Marshal(text)
	return forms{msgp.AppendString(nil, text), string(quoted)}
}

// wrap puts a value, with siblings before and behind it, into a list, a dict, or objects around one.
func (g *nested) wrap(v forms, calls bool) forms {
	before, behind := g.mark(), g.mark()
	k := 2
	if calls {
		k = 5
	}
	switch g.rnd.IntN(k) {
	case 0:
		return forms{packList(before.packed, v.packed, behind.packed), "[" + before.json + "," + v.json + "," + behind.json + "]"}
	case 1:
	case 2: // a container that the worker gave a msgpack value of its own
		return forms{packExt(extSingleArg, "builtins", "list", packList(before.packed, v.packed, behind.packed)), "[" + before.json + "," + v.json + "," + behind.json + "]"}
	case 3: // a set: its list is all that shows
		return forms{packExt(extSingleArg, "builtins", "set", packList(before.packed, v.packed, behind.packed)), "[" + before.json + "," + v.json + "," + behind.json + "]"}
	case 4: // an object of pydantic
		m := fields{{"a", before.packed}, {"v", v.packed}, {"z", behind.packed}}.pack()
		return forms{packExt(extPydanticV2, "m", "C", m), `{"a":` + before.json + `,"v":` + v.json + `,"z":` + behind.json + "}"}
	}
	return forms{fields{{"a", before.packed}, {"v", v.packed}, {"z", behind.packed}}.pack(), `{"a":` + before.json + `,"v":` + v.json + `,"z":` + behind.json + "}"}
}

// cut is what is shown of JSON, worked out in another way than by the code: element by element.
func cut(t *testing.T, text string, depth int) string {
	t.Helper()
	var b strings.Builder
	d := json.NewDecoder(strings.NewReader(text))
	type level struct{ object, some, key bool }
	var open []level
	hidden := 0
	for {
		tok, err := d.Token()
		if err != nil {
			return b.String()
		}
		delim, is := tok.(json.Delim)
		closes := is && (delim == ']' || delim == '}')
		if hidden > 0 {
			if closes {
				hidden--
			} else if is {
				hidden++
			}
			continue
		}
		if closes {
			b.WriteString(delim.String())
			open = open[:len(open)-1]
			continue
		}
		if n := len(open); n > 0 {
			l := &open[n-1]
			switch {
			case l.object && l.key:
				b.WriteByte(':')
				l.key = false
			default:
				if l.some {
					b.WriteByte(',')
				}
				l.some, l.key = true, l.object
			}
		}
		switch {
		case is && len(open) >= depth:
			b.WriteString("null")
			hidden = 1
		case is:
			b.WriteString(delim.String())
			open = append(open, level{object: delim == '{'})
		default:
			text, err := json.Marshal(tok)
			require.NoError(t, err)
			b.Write(text)
		}
	}
}

// Whatever is nested too deeply is null itself. All that stands next to it, or above it, is shown.
func TestWhatIsTooDeepHidesNothingElse(t *testing.T) {
	t.Parallel()
	for seed := range uint64(16) {
		g := &nested{rnd: rand.New(rand.NewPCG(seed, 1))}
		levels := ShownDepth - 3 + g.rnd.IntN(6)
		switch g.rnd.IntN(4) {
		case 0:
			levels = 2 * ShownDepth
		case 1:
			levels = g.rnd.IntN(300)
		}
		calls := g.rnd.IntN(2) == 0
		v := g.mark()
		for range levels {
			v = g.wrap(v, calls)
		}
		want := cut(t, v.json, ShownDepth)
		got, err := AppendJSON([]byte("x"), TypeMsgpack, v.packed)
		require.NoError(t, err, seed)
		require.Equal(t, "x"+want, string(got), seed)
		if old, err := AppendJSON(nil, TypeJSON, []byte(v.json)); true {
			require.NoError(t, err, seed)
			require.Equal(t, want, string(old), seed)
		}
		require.Equal(t, want, string(AppendShown(nil, []byte(v.json), 0)), seed)

		// The JSON behind a pickle counts from where it stands.
		view := packExt(extSingleArg, "pickle", "loads", append(msgp.AppendBytes(nil, []byte("p")), msgp.AppendBytes(nil, []byte(v.json))...))
		if levels < maxDepth {
			for range 10 {
				view, v.json = packList(view), "["+v.json+"]"
			}
			got, err = AppendJSON(nil, TypeMsgpack, view)
			require.NoError(t, err)
			require.Equal(t, cut(t, v.json, ShownDepth), string(got), seed)
		}
	}
}

// Far beyond any bound there is no recursion that follows.
func TestNestingWithoutBoundIsNull(t *testing.T) {
	t.Parallel()
	const levels = 1_000_000
	for name, data := range map[string][]byte{
		"lists": append([]byte(strings.Repeat("\x91", levels)), 0xc0),
		"dicts": append([]byte(strings.Repeat("\x81\xa0", levels)), 0xc0),
		"keys":  append([]byte(strings.Repeat("\x81", levels)), []byte(strings.Repeat("\xc0", levels+1))...),
	} {
		got, err := AppendJSON(nil, TypeMsgpack, packList(data, msgp.AppendInt(nil, 7)))
		require.NoError(t, err, name)
		require.True(t, json.Valid(got), name)
		require.True(t, strings.HasSuffix(string(got), ",7]"), name)
		require.Less(t, len(got), 100*ShownDepth, name)
	}
}

// A key that is no text shows as the same text at every depth: it has levels of its own.
func TestKeysAreAlikeAtEveryDepth(t *testing.T) {
	t.Parallel()
	pair := append(msgp.AppendMapHeader(nil, 1), packList(msgp.AppendInt(nil, 1), msgp.AppendInt(nil, 2))...)
	v := msgp.AppendString(pair, "pair")
	want := `{"[1,2]":"pair"}`
	for range ShownDepth - 1 {
		v, want = packList(v), "["+want+"]"
		got, err := AppendJSON(nil, TypeMsgpack, v)
		require.NoError(t, err)
		require.Equal(t, want, string(got))
	}
}
