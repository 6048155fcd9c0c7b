package limits

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/internal/fault"
)

func TestMetadata(t *testing.T) {
	t.Parallel()
	sized := func(n int) []byte { return []byte(`{"k":"` + strings.Repeat("x", n-len(`{"k":""}`)) + `"}`) }
	nested := func(n int) []byte { return []byte(strings.Repeat(`{"k":`, n-1) + "{}" + strings.Repeat("}", n-1)) }
	for _, fine := range [][]byte{nil, []byte("{}"), sized(MetadataBytes), nested(MetadataDepth)} {
		require.NoError(t, Metadata(fine))
	}
	for limit, tooMuch := range map[string][]byte{"1 MiB": sized(MetadataBytes + 1), "200 levels": nested(MetadataDepth + 1)} {
		err := Metadata(tooMuch)
		require.True(t, fault.Is(err, fault.Unprocessable))
		require.ErrorContains(t, err, limit)
	}
	half := sized(MetadataBytes/2 + 100)
	_, err := MergeMetadata(half, []byte(strings.Replace(string(half), "k", "l", 1)))
	require.ErrorContains(t, err, "1 MiB", "many small patches are bounded as one large one is")
}
