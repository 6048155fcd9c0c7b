package server

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzRequest: whatever a client sends, the answer is not the server's fault: no panic, no 500. Streams are left out: their fakes wait.
func FuzzRequest(f *testing.F) {
	th := "/threads/" + someThread
	for _, seed := range [][4]string{
		{"POST", "/assistants/search", `{"select":["name"],"metadata":{"a":1}}`, ""},
		{"GET", "/assistants/" + someID + "/subgraphs/a%7Cb?recurse=true", "", ""},
		{"GET", th + "/history?limit=3&before=x", "", ""},
		{"POST", th + "/state/checkpoint", `{"checkpoint":{"checkpoint_id":"x","checkpoint_ns":"a|b"}}`, ""},
		{"GET", th + "/messages?after_seq=1&limit=2", "", ""},
		{"POST", th + "/runs", `{"assistant_id":"a","multitask_strategy":"reject","after_seconds":3}`, ""},
		{"GET", th + "/runs?select=run_id&select=status", "", ""},
		{"POST", "/runs/crons", `{"assistant_id":"a","schedule":"* * * * *","timezone":"Europe/Berlin"}`, ""},
		{"PUT", "/store/items", `{"namespace":["a"],"key":"k","value":{"x":1}}`, ""},
		{"GET", "/store/items?namespace=a.b&key=%00", "", ""},
		{"GET", th + "/runs/%FF%FE/", "", "1-2"},
	} {
		f.Add(seed[0], seed[1], seed[2], seed[3])
	}
	w := setup(f)
	f.Fuzz(func(t *testing.T, method, path, body, last string) {
		if !strings.HasPrefix(path, "/") || strings.Contains(path, "stream") || strings.Contains(path, "wait") || strings.Contains(path, "join") {
			return
		}
		req, err := http.NewRequest(method, "http://"+w.addr+path, strings.NewReader(body))
		if err != nil || strings.Contains(strings.ToLower(req.URL.Path), "stream") {
			return
		}
		for _, c := range last {
			if c < ' ' || c > '~' {
				return
			}
		}
		req.Header.Set("Last-Event-ID", last)
		res, err := w.http.Do(req)
		if err != nil {
			return // a method or path that no client can send
		}
		res.Body.Close()
		require.NotEqual(t, http.StatusInternalServerError, res.StatusCode, "%s %s %s", method, path, body)
	})
}
