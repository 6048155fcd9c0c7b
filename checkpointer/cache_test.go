package checkpointer

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tinylib/msgp/msgp"

	"understudy/internal/jsonplus"
)

func list(from, to int) (data []byte, text string) {
	data = msgp.AppendArrayHeader(nil, uint32(to-from))
	var all []string
	for i := from; i < to; i++ {
		s := fmt.Sprintf("%d %s", i, strings.Repeat("x", 100))
		data = msgp.AppendString(data, s)
		all = append(all, `"`+s+`"`)
	}
	return data, "[" + strings.Join(all, ",") + "]"
}

func TestValueCacheStaysWithinItsBound(t *testing.T) {
	t.Parallel()
	c := newValueCache(20_000)
	for i := range 200 {
		data, want := list(i, i+20)
		got, err := c.append([]byte("k"), jsonplus.TypeMsgpack, data)
		require.NoError(t, err)
		require.Equal(t, "k"+want, string(got))
		require.LessOrEqual(t, c.texts.Weight(), 20_000)
		require.NotZero(t, c.texts.Weight())
	}
	huge := msgp.AppendString(nil, strings.Repeat("x", 50_000))
	for range 2 { // shown, not kept
		got, err := c.append(nil, jsonplus.TypeMsgpack, huge)
		require.NoError(t, err)
		require.Len(t, got, 50_002)
	}
}

func TestValueCacheAfterAnError(t *testing.T) {
	t.Parallel()
	c := newValueCache(20_000)
	bad := append(msgp.AppendArrayHeader(nil, 2), msgp.AppendString(nil, strings.Repeat("y", 100))...)
	bad = append(bad, append([]byte{0xdb, 0, 0, 0, 100}, strings.Repeat("z", 99)...)...)
	got, err := c.append([]byte("kept"), jsonplus.TypeMsgpack, bad)
	require.Error(t, err)
	require.Equal(t, "kept", string(got))
}

// An item that cannot be read is null itself.
func TestValueCacheShowsWhatStandsNextToAnUnreadableItem(t *testing.T) {
	t.Parallel()
	c := newValueCache(20_000)
	text := msgp.AppendString(nil, strings.Repeat("y", 100))
	got, err := c.appendItems(nil, [][]byte{text, {0xc1}, text}, true)
	require.NoError(t, err)
	y := `"` + strings.Repeat("y", 100) + `"`
	require.Equal(t, "["+y+",null,"+y+"]", string(got))
}

func TestValueCacheIsSharedSafely(t *testing.T) {
	t.Parallel()
	c := newValueCache(40_000)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 100 {
				data, want := list((g+i)%30, (g+i)%30+20)
				got, err := c.append(nil, jsonplus.TypeMsgpack, data)
				if err != nil || string(got) != want {
					t.Errorf("%v: %s", err, got)
				}
			}
		})
	}
	wg.Wait()
}
