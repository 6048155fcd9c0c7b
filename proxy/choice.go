package proxy

import (
	"net/http"
	"net/url"
	"strings"

	"understudy/compat"
	"understudy/eventstore/overlay"
)

// choose removes our own parameters and header from a request, and validates them. The rest of the query stays byte for
// byte.
func choose(query string, header http.Header) (overlay.Choice, string, error) {
	given := header.Get(compat.OverlayHeader)
	header.Del(compat.OverlayHeader)
	if !strings.Contains(query, compat.OverlayParam) && !strings.Contains(query, compat.MarkersParam) && !strings.Contains(query, "%") {
		c, err := compat.Overlay(nil, nil, given)
		return c, query, err
	}
	var param, markers *string
	kept := make([]string, 0, 8)
	for part := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(part, "=")
		to := &param
		switch unescaped(name) {
		case compat.OverlayParam:
		case compat.MarkersParam:
			to = &markers
		default:
			kept = append(kept, part)
			continue
		}
		if *to == nil { // the first one wins
			v := unescaped(value)
			*to = &v
		}
	}
	c, err := compat.Overlay(param, markers, given)
	return c, strings.Join(kept, "&"), err
}

func unescaped(s string) string {
	if u, err := url.QueryUnescape(s); err == nil {
		return u
	}
	return s
}
