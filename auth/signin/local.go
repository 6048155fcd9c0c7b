package signin

import (
	"net/url"
	"strings"
)

const maxNext = 2048

// Local reports whether a browser that follows next stays on the server: a path from the root, without what browsers read as another host.
func Local(next string) bool {
	if len(next) > maxNext || !strings.HasPrefix(next, "/") || strings.HasPrefix(next, "//") || strings.Contains(next, `\`) {
		return false
	}
	if strings.ContainsFunc(next, func(r rune) bool { return r <= ' ' || r == 0x7f }) { // browsers leave tabs and line ends out
		return false
	}
	u, err := url.Parse(next)
	return err == nil && u.Scheme == "" && u.Host == "" && u.User == nil
}
