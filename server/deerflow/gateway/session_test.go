package gateway

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Origins are equal when a browser would call them the same.
func TestOrigins(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		"http://A.example": "http://a.example", "http://a.example:80": "http://a.example", "https://a.example:443": "https://a.example", "https://a.example:80": "https://a.example:80",
		"HTTP://[::1]:8001": "http://[::1]:8001", " http://a ": "http://a", "http://a:0": "", "http://a:65536": "", "http://a:x": "", "null": "", "": "", "ftp://a": "", "http://": "", "http://a/": "", "http://a?b": "",
		"http://u@a": "", "http://a#b": "", "//a": "", "a": "",
	} {
		require.Equal(t, want, originOf(given), given)
	}
}
