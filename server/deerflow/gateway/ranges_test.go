package gateway

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/stretchr/testify/require"

	"understudy/internal/fault"
	"understudy/server/internal/web"
)

// A range is answered as Go's file server answers it, or is refused where that ignores it.
func TestRanges(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(20, 7))
	numbers := []string{"", "0", "1", "9", "10", "11", "00", strconv.Itoa(math.MaxInt64)}
	for range 20_000 {
		size := random.IntN(12)
		header := fmt.Sprintf("bytes=%s-%s", numbers[random.IntN(len(numbers))], numbers[random.IntN(len(numbers))])
		content := []byte("0123456789ab")[:size]
		r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
		r.Header.Set("Range", header)
		w := httptest.NewRecorder()
		http.ServeContent(w, r, "a.bin", time.Time{}, bytes.NewReader(content))

		part, all, err := readRange(header, int64(size))
		require.False(t, all)
		about := fmt.Sprintf("%s of %d bytes", header, size)
		switch {
		case err == nil:
			require.Equal(t, http.StatusPartialContent, w.Code, about)
			require.Equal(t, w.Body.Bytes(), content[part.from:part.from+part.length], about)
		case fault.Is(err, fault.Invalid): // as DeerFlow
			require.Equal(t, http.StatusRequestedRangeNotSatisfiable, w.Code, about)
		default:
			require.ErrorIs(t, err, fiber.ErrRequestedRangeNotSatisfiable, about)
			require.True(t, w.Code == http.StatusRequestedRangeNotSatisfiable || w.Body.Len() == 0, about) // Go answers with nothing of an empty file, and with the last 0 bytes
		}
	}
	for header, want := range map[string]span{"BYTES = 2 - 3 ": {2, 2}, "bytes=-3": {7, 3}, "bytes=-99999999999999999999": {0, 10}, "bytes=4-99999999999999999999": {4, 6}} {
		part, all, err := readRange(header, 10)
		require.NoError(t, err, header)
		require.False(t, all)
		require.Equal(t, want, part, header)
	}
	_, all, err := readRange("bytes=0-1,3-4", 10)
	require.NoError(t, err)
	require.True(t, all)
	for _, header := range []string{"", "bytes", "bytes=", "bytes=-", "bytes=a-b", "bytes=--5", "bytes=1--5", "bytes=+1-5", "bytes=0x1-5", "items=0-5", "bytes=4-2", "bytes=0-5;x", "bytes=٠-٥"} {
		_, _, err := readRange(header, 10)
		require.True(t, fault.Is(err, fault.Invalid), header)
	}
}

func TestEntityTags(t *testing.T) {
	t.Parallel()
	for _, header := range []string{`"a"`, `W/"a"`, "*", `"x", "a"`, `"x",W/"a" , "y"`} {
		require.True(t, web.HasTag(header, `"a"`), header)
	}
	for _, header := range []string{"", `"x"`, "a", `"`, `"a`, `w/"a"`, `"ab"`, `"x","y"`} {
		require.False(t, web.HasTag(header, `"a"`), header)
	}
}
