package storagetest

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/assistant"
	"understudy/checkpointer"
	"understudy/eventstore"
	"understudy/run"
	"understudy/store"
)

// Text that some database cannot hold is the same in every storage, and found by what was given.
var textCases = map[string]func(*testing.T, Backend){
	"NUL, invalid UTF-8 and unpaired surrogates": func(t *testing.T, b Backend) {
		for n, odd := range []string{"\x00", "a\x00b\x00", "\xff", "\xc3\x00\xa4", "ä\x00😀"} {
			kept := asText(odd)
			i := &store.Item{Namespace: []string{"n" + odd, "x"}, Key: "k" + odd, Value: raw(`{}`), CreatedAt: at(1), UpdatedAt: at(1)}
			require.NoError(t, b.Items.Apply(ctx, []*store.Item{i}))
			got, err := b.Items.Item(ctx, i.Namespace, i.Key)
			require.NoError(t, err)
			require.NotNil(t, got, "%q", odd)
			require.Equal(t, []string{"n" + kept, "x", "k" + kept}, append(got.Namespace, got.Key))
			list, err := b.Items.Items(ctx, store.Search{Prefix: []string{"n" + odd}, Limit: 10})
			require.NoError(t, err)
			require.Len(t, list, 1, "%q", odd)
			require.NoError(t, b.Items.Apply(ctx, []*store.Item{{Namespace: i.Namespace, Key: i.Key}}))
			got, err = b.Items.Item(ctx, i.Namespace, i.Key)
			require.NoError(t, err)
			require.Nil(t, got)

			a := &assistant.Assistant{ID: "a", GraphID: "g", Name: "n" + odd, Version: 1, CreatedAt: at(1), UpdatedAt: at(1), Config: raw(`{}`), Context: raw(`{}`), Metadata: raw(`{}`)}
			require.NoError(t, b.Assistants.Write(ctx, func(tx assistant.Tx) error {
				_ = tx.DeleteAssistant(a.ID)
				return tx.InsertAssistant(a)
			}))
			found, err := b.Assistants.Assistant(ctx, a.ID)
			require.NoError(t, err)
			require.Equal(t, "n"+kept, found.Name)

			p := put(key(n+1, "n"+odd, "c"+odd), "", nil, blob("ch"+odd, "1", "v"))
			p.Data = raw(`{"channel_versions":{"ch` + kept + `":"1"}}`)
			puts(t, b, p)
			write(t, b, func(tx run.Tx) error {
				return tx.PutWrites(p.Key, []checkpointer.Write{{TaskID: "t" + odd, Channel: "w" + odd, Type: "msgpack", Data: []byte(odd), Path: "p" + odd}})
			})
			tuple := load(t, b, p.Key)
			require.NotNil(t, tuple, "%q", odd)
			require.Equal(t, []string{"n" + kept, "c" + kept, "ch" + kept}, []string{tuple.NS, string(tuple.ID), tuple.Blobs[0].Channel})
			require.Equal(t, checkpointer.Write{TaskID: "t" + kept, Channel: "w" + kept, Type: "msgpack", Data: []byte(odd), Path: "p" + kept}, tuple.Writes[0])

			write(t, b, func(tx run.Tx) error {
				return tx.AppendEvents(threadID(n+1), []*eventstore.Event{{Type: "t" + odd, MessageID: "m" + odd, CreatedAt: at(1)}})
			})
			events, err := eventReader(t, b).Events(ctx, threadID(n+1), 0, 0)
			require.NoError(t, err)
			last := events[len(events)-1]
			require.Equal(t, []string{"t" + kept, "m" + kept}, []string{last.Type, last.MessageID})
		}
	},
	"the same in checkpoints and their metadata": func(t *testing.T, b Backend) {
		for given, kept := range map[string]string{
			`a\u0000b`: `a\ufffdb`, `\ud800`: `\ufffd`, `\udc00\ud800x`: `\ufffd\ufffdx`, `\ud83d\ude00`: `\ud83d\ude00`, `\\u0000`: `\\u0000`, `\\\u0000`: `\\\ufffd`,
			"\xff": "\uFFFD", `é\u00e9`: `éé`,
		} {
			text := func(s string) json.RawMessage {
				return raw(`{"channel_versions":{},"channel_values":{"x":"` + s + `"},"y":{"` + s + `":["` + s + `"]}}`)
			}
			p := put(key(1, "", "c"), "", text(given))
			p.Data = text(given)
			puts(t, b, p)
			got := load(t, b, p.Key)
			require.JSONEq(t, string(text(kept)), string(got.Data), given)
			require.JSONEq(t, string(text(kept)), string(got.Metadata), given)
		}
	},
}

// asText is how text is stored.
func asText(s string) (kept string) {
	for _, r := range s { // U+FFFD for each invalid byte
		if r == 0 {
			r = '\uFFFD'
		}
		kept += string(r)
	}
	return kept
}
