package app

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"
)

// The files of a thread go with it, by whatever route it is deleted, and those of others stay.
func TestFilesGoWithTheirThread(t *testing.T) {
	t.Parallel()
	srv, user := startDeerFlow(t, func(*Config) {})
	ann, ben := user("ann@example.com"), user("ben@example.com")
	// keep makes a thread of a user with a file, and returns its folder.
	keep := func(u *gatewayUser) (thread, folder string) {
		_, me := u.ask("GET", "/api/v1/auth/me", "")
		thread = u.must("POST", "/api/threads", `{}`, "thread_id")
		status, answer := u.ask("POST", "/api/threads/"+thread+"/uploads", "--b\r\nContent-Disposition: form-data; name=\"files\"; filename=\"a.txt\"\r\n\r\nx\r\n--b--\r\n", "Content-Type", "multipart/form-data; boundary=b")
		require.Equal(t, 200, status, answer)
		folder = srv.deerflow.Home.ThreadDir(gjson.Get(me, "id").String(), thread)
		require.DirExists(t, folder)
		return thread, folder
	}
	kept, keptFolder := keep(ann)
	for name, remove := range map[string]func(thread string) (int, string){
		"the Gateway's": func(thread string) (int, string) { return ann.ask("DELETE", "/api/threads/"+thread, "") },
		"LangGraph's":   func(thread string) (int, string) { return ann.ask("DELETE", "/threads/"+thread, "") },
		"several threads": func(thread string) (int, string) {
			return ann.ask("POST", "/threads/prune", `{"thread_ids":["`+thread+`"]}`)
		},
	} {
		thread, folder := keep(ann)
		status, answer := ben.ask("DELETE", "/threads/"+thread, "")
		require.Equal(t, 404, status, answer)
		require.DirExists(t, folder, name)
		status, answer = remove(thread)
		require.Less(t, status, 300, "%s: %s", name, answer)
		_, err := os.Stat(folder)
		require.ErrorIs(t, err, os.ErrNotExist, name)
	}
	require.DirExists(t, keptFolder)
	_, list := ann.ask("GET", "/api/threads/"+kept+"/uploads/list", "")
	require.Equal(t, int64(1), gjson.Get(list, "count").Int(), list)
}
