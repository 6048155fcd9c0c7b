package main

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// Commands add the CSRF token to the credentials of DeerFlow's accounts, and to no others; one that is given stays.
func TestCSRFOfCommands(t *testing.T) {
	t.Parallel()
	for given, want := range map[[3]string][2]string{ // cookie, internal token, CSRF token: cookie, CSRF token
		{"", "", ""}:                                        {"", ""},
		{"session=s", "", ""}:                               {"session=s", ""},
		{"access_token=a; csrf_token=c", "", ""}:            {"access_token=a; csrf_token=c", "c"},
		{"access_token=a", "", ""}:                          {"access_token=a; csrf_token=command", "command"},
		{"", "t", ""}:                                       {"csrf_token=command", "command"},
		{"other=o", "t", ""}:                                {"other=o; csrf_token=command", "command"},
		{"access_token=a; csrf_token=c", "t", "theirs"}:     {"access_token=a; csrf_token=c", "theirs"},
		{"not a cookie", "t", ""}:                           {"not a cookie", ""},
		{"access_token=a; x=" + "y; csrf_token=d", "t", ""}: {"access_token=a; x=y; csrf_token=d", "d"},
	} {
		h := http.Header{}
		for i, name := range []string{"Cookie", "X-DeerFlow-Internal-Token", "X-CSRF-Token"} {
			if given[i] != "" {
				h.Set(name, given[i])
			}
		}
		addCSRF(h)
		require.Equal(t, want, [2]string{h.Get("Cookie"), h.Get("X-CSRF-Token")}, given)
	}
}
