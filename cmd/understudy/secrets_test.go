package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/uuid"
	"github.com/klauspost/compress/s2"
	"github.com/stretchr/testify/require"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// secretKeeper makes secrets, collects everything that is stored or printed, and finds the first in the second.
type secretKeeper struct {
	t       *testing.T
	mu      sync.Mutex
	secrets map[string]string // what it is, by the secret
	seen    map[string][]byte // by where it was seen
}

func newSecretKeeper(t *testing.T) *secretKeeper {
	t.Helper()
	return &secretKeeper{t: t, secrets: map[string]string{}, seen: map[string][]byte{}}
}

// secret makes one.
func (k *secretKeeper) secret(what string) string {
	return k.keep(what, "s3cr3t"+strings.ReplaceAll(uuid.NewString(), "-", ""))
}

// keep notes a secret that is made elsewhere.
func (k *secretKeeper) keep(what, text string) string {
	k.secrets[text] = what
	return text
}

// saw adds what was stored or printed.
func (k *secretKeeper) saw(where string, text []byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.seen[where] = append(append(k.seen[where], text...), '\n')
}

// sawFolder adds all files of a folder.
func (k *secretKeeper) sawFolder(where, dir string) {
	k.t.Helper()
	files := 0
	require.NoError(k.t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		k.saw(where+" "+filepath.Base(path), text)
		files++
		return err
	}))
	require.Positive(k.t, files, where)
}

// sawDatabase adds each value of a database, also of its log, and what is packed in one.
func (k *secretKeeper) sawDatabase(where, path string) {
	k.t.Helper()
	conn, err := sqlite.OpenConn(path, sqlite.OpenReadOnly)
	require.NoError(k.t, err)
	defer func() { require.NoError(k.t, conn.Close()) }()
	var tables []string
	require.NoError(k.t, sqlitex.ExecuteTransient(conn, "SELECT name FROM sqlite_schema WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'", &sqlitex.ExecOptions{
		ResultFunc: func(s *sqlite.Stmt) error {
			tables = append(tables, s.ColumnText(0))
			return nil
		},
	}))
	var unpacked []byte
	for _, table := range tables {
		require.NoError(k.t, sqlitex.ExecuteTransient(conn, `SELECT * FROM "`+table+`"`, &sqlitex.ExecOptions{ResultFunc: func(s *sqlite.Stmt) error {
			for i := range s.ColumnCount() {
				value, err := io.ReadAll(s.ColumnReader(i))
				if err != nil {
					return err
				}
				k.saw(where+" "+table, value)
				if plain, err := s2.Decode(nil, value); err == nil && len(plain) > 0 {
					k.saw(where+" "+table+", unpacked", plain)
					unpacked = append(unpacked, plain...)
				}
			}
			return nil
		}}), table)
	}
	require.Contains(k.t, string(unpacked), "You said: hello", "the search finds what is packed")
}

// check fails for each secret that was seen, also in another spelling.
func (k *secretKeeper) check() {
	k.t.Helper()
	for where, text := range k.seen {
		for secret, what := range k.secrets {
			for _, form := range []string{secret, base64.StdEncoding.EncodeToString([]byte(secret)), base64.RawURLEncoding.EncodeToString([]byte(secret)), hex.EncodeToString([]byte(secret))} {
				if at := bytes.Index(text, []byte(form)); at >= 0 {
					k.t.Errorf("%s is in %s: …%s…", what, where, text[max(0, at-200):min(len(text), at+len(form)+50)])
				}
			}
		}
	}
}

// echo answers like a provider, a tool or a receiver that repeats in its error what it was sent, header by header.
func echo(t *testing.T, status int, got func(body []byte)) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got(body)
		key := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"error":{"message":"Incorrect API key provided: %s. Headers: %s %s","type":"invalid_request_error","code":"invalid_api_key"}}`, key, r.Header.Get("Api-Key"), r.Header.Get("X-Hook"))
	}))
	t.Cleanup(s.Close)
	return s
}

// Credentials of clients, of providers, of webhooks and of databases are in nothing that is logged, stored, answered, sent or printed, in text and in JSON, at
// the level debug, when all is well and when everything fails.
func TestSecretsNeverAppear(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"false", "true"} {
		t.Run("log-json="+format, func(t *testing.T) {
			t.Parallel()
			k := newSecretKeeper(t)
			k.run(format)
			k.check()
		})
	}
}

func (k *secretKeeper) run(logJSON string) {
	t := k.t
	dir := folderWithAgent(t)
	data, file := filepath.Join(dir, "data"), filepath.Join(dir, "langgraph.json")
	modelKey, embedKey, hook, jwtSecret := k.secret("the key of a provider"), k.secret("the key for embeddings"), k.secret("the header of a webhook"), k.secret("the secret of tokens")
	provider := echo(t, http.StatusUnauthorized, func([]byte) {})
	received := make(chan struct{}, 100)
	receiver := echo(t, http.StatusInternalServerError, func(body []byte) {
		k.saw("webhook", body)
		select {
		case received <- struct{}{}:
		default:
		}
	})
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, `{
		"graphs": {
			"echo": {"agent": {"model": "scripted:script.json"}},
			"chat": {"agent": {"model": {"name": "openai:gpt", "base_url": %q, "api_key": "${MY_MODEL_KEY}", "headers": {"Api-Key": "${MY_MODEL_KEY}"}}}}
		},
		"env": {"MY_MODEL_KEY": %q, "OPENAI_API_KEY": %q, "OPENAI_BASE_URL": %q, "LG_WEBHOOK_TOKEN": %q, "JWT_SECRET": %q},
		"store": {"index": {"dims": 3, "embed": "openai:text-embedding-3-small"}},
		"auth": {"api_keys": true, "jwt": {"secret_env": "JWT_SECRET"}},
		"webhooks": {"url": {"require_https": false, "disable_loopback": false}, "headers": {"X-Hook": "${{ env.LG_WEBHOOK_TOKEN }}"}}
	}`, provider.URL, modelKey, embedKey, provider.URL, hook, jwtSecret), 0o600))
	command := func(args ...string) string {
		t.Helper()
		var out, errs bytes.Buffer
		root := newRoot(&out, &errs)
		root.SetArgs(append(args, "-c", file, "--data", data))
		err := root.ExecuteContext(t.Context())
		k.saw("stderr of "+args[0], errs.Bytes())
		if len(args) < 2 || args[0] != "keys" || args[1] != "create" { // which prints the key, once
			k.saw("stdout of "+args[0], out.Bytes())
		}
		if err != nil {
			k.saw("error of "+args[0], []byte(err.Error()))
		}
		return strings.TrimSpace(out.String())
	}
	create := func(name string) string {
		key := command("keys", "create", "--name", name)
		k.keep("the key of "+name, key[20:52])
		return key
	}
	ada, gone := create("ada"), create("gone")
	command("keys", "revoke", gone[3:19])
	sign := func(what, secret string, end time.Duration) string {
		token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{"sub": "ada", "exp": time.Now().Add(end).Unix()}).SignedString([]byte(secret))
		require.NoError(t, err)
		k.keep(what, token[strings.LastIndex(token, ".")+1:])
		return token
	}
	credentials := []http.Header{
		{"X-Api-Key": {ada}},
		{"Authorization": {"Bearer " + sign("a token", jwtSecret, time.Hour)}},
		{"X-Api-Key": {gone}},
		{"X-Api-Key": {k.secret("a key that is none")}},
		{"Authorization": {"Bearer " + sign("an expired token", jwtSecret, -time.Hour)}},
		{"Authorization": {"Bearer " + sign("a forged token", "another secret of thirty-two bytes", time.Hour)}},
		{"Authorization": {"Bearer " + k.secret("a token that is none")}},
		{"Authorization": {"Basic " + k.secret("a password")}},
		{"X-Api-Key": {ada, k.secret("a second key")}},
	}
	for i, h := range credentials { // and what comes along
		h.Set("Cookie", "session="+k.secret(fmt.Sprint("a cookie ", i)))
		h.Set("X-Service-Key", k.secret(fmt.Sprint("a service key ", i)))
	}

	url, stop := k.serve(file, data, logJSON)
	ask := func(header http.Header, method, path, body string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, url+path, strings.NewReader(body))
		require.NoError(t, err)
		req.Header = header.Clone()
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		k.saw("answer to "+method+" "+path, fmt.Append(text, resp.Header))
		return resp.StatusCode, string(text)
	}
	inQuery := k.secret("a token in a query")
	for i, header := range credentials {
		const body = `{"assistant_id":%q,"input":{"messages":[{"role":"user","content":"hello"}]},"webhook":%q,"if_not_exists":"create"}`
		thread := "/threads/" + uuid.NewString()
		good, bad := fmt.Sprintf(body, "echo", receiver.URL+"/hook"), fmt.Sprintf(body, "chat", receiver.URL+"/hook")
		for _, one := range [][3]string{
			{"POST", "/threads", `{"thread_id":"` + thread[len("/threads/"):] + `"}`},
			{"POST", thread + "/runs/wait", good},
			{"POST", thread + "/runs/stream", bad},
			{"POST", thread + "/runs/stream", strings.Replace(good, "{", `{"stream_resumable":true,"stream_mode":["values","messages","debug"],`, 1)},
			{"POST", thread + "/runs/wait", bad},
			{"POST", "/runs/wait", bad},
			{"POST", thread + "/runs", bad},
			{"POST", thread + "/runs/crons", `{"assistant_id":"chat","schedule":"0 0 1 1 *","input":{}}`},
			{"GET", thread, ""},
			{"GET", thread + "/state", ""},
			{"GET", thread + "/history", ""},
			{"GET", thread + "/runs", ""},
			{"GET", thread + "/events", ""},
			{"GET", thread + "/messages", ""},
			{"POST", "/v1/chat/completions", `{"model":"chat","messages":[{"role":"user","content":"hello"}]}`},
			{"POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"chat","arguments":{"messages":[{"role":"user","content":"hello"}]}}}`},
			{"POST", "/a2a/chat", `{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"message":{"role":"user","messageId":"1","parts":[{"kind":"text","text":"hello"}]}}}`},
			{"POST", "/threads", `{"metadata":`},
			{"DELETE", "/threads", ""},
			{"GET", "/nowhere?api_key=" + inQuery, ""},
			{"GET", "/threads/x?token=" + inQuery, ""},
			{"PUT", "/store/items", `{}`},
			{"PUT", "/store/items", `{"namespace":["a"],"key":"k","value":{"text":"hello"}}`},
			{"POST", "/store/items/search", `{"namespace_prefix":[],"query":"hello"}`},
		} {
			status, text := ask(header, one[0], one[1], one[2])
			require.Equal(t, i > 1, status == http.StatusUnauthorized, "%s %s: %d %s", one[0], one[1], status, text)
		}
	}
	select {
	case <-received:
	case <-time.After(30 * time.Second):
		t.Fatal("no webhook")
	}
	for _, path := range []string{"/metrics", "/info", "/openapi.json", "/ok"} {
		ask(http.Header{}, "GET", path, "")
	}
	for _, args := range [][]string{
		{"keys", "list"},
		{"keys", "list", "--json"},
		{"doctor", "--port", "0"},
		{"doctor", "--port", "0", "--json"},
		{"backup", filepath.Join(dir, "copy")},
		{"export", "--to", filepath.Join(dir, "out.sqlite")},
	} {
		command(args...)
	}
	k.sawFolder("data of a server that runs", data)
	k.sawDatabase("rows", filepath.Join(data, "understudy.db"))
	stop()
	command("audit") // refusals are written by now
	command("audit", "--json")
	k.sawFolder("data", data)
	k.sawFolder("backup", filepath.Join(dir, "copy"))
	out, err := os.ReadFile(filepath.Join(dir, "out.sqlite"))
	require.NoError(t, err)
	k.saw("export", out)
	for where, part := range map[string]string{"log": "[redacted]", "data understudy.db": "You said: hello", "export": "You said: hello", "webhook": "hello", "stdout of audit": "sign-in.failed", "stdout of doctor": "ok"} {
		require.Contains(t, string(k.seen[where]), part, "the search finds what is in %s", where)
	}
	k.encrypt(file, command)
	// Databases that are not there. Each command says so, by an address without its password.
	for _, address := range []string{
		"postgres://user:" + k.secret("the password of a database") + "@127.0.0.1:1/db?sslmode=disable", "postgres://user:" + k.secret("the password in a bad URL") + "@127.0.0.1:x/db",
		"postgres://127.0.0.1:1/db?user=u&password=" + k.secret("the password in a query"), "host=127.0.0.1 port=1 user=u password=" + k.secret("the password in words"),
	} {
		redis := "redis://:" + k.secret("the password of Redis") + "@127.0.0.1:1/0"
		for _, args := range [][]string{{"doctor", "--port", "0"}, {"serve", "--port", "0"}, {"keys", "list"}, {"audit"}, {"export", "--to", filepath.Join(dir, "o.sqlite")}} {
			more := []string{"--database-url", address}
			if args[0] == "doctor" || args[0] == "serve" {
				more = append(more, "--redis-url", redis, "--log-level", "debug", "--log-json="+logJSON)
			}
			command(append(args, more...)...)
		}
	}
}

// encrypt encrypts the database with keys that are right, and wrong.
func (k *secretKeeper) encrypt(file string, command func(args ...string) string) {
	t := k.t
	config, err := os.ReadFile(file)
	require.NoError(t, err)
	one, two, three := k.secret("a key of the database")[:16], k.secret("its next key")[:16], k.secret("a wrong key")[:16]
	for _, key := range []string{one, two, three} {
		k.keep("a key of the database", key)
	}
	for _, keys := range []string{one, two + "," + one, three, "short" + one, one + ","} {
		require.NoError(t, os.WriteFile(file, bytes.Replace(config, []byte(`"env": {`), []byte(`"env": {"LANGGRAPH_AES_KEY": "`+keys+`", `), 1), 0o600))
		command("encrypt")
		command("encrypt", "--rotate")
		command("doctor", "--port", "0")
		command("keys", "list")
	}
	require.NoError(t, os.WriteFile(file, config, 0o600))
	require.Contains(t, string(k.seen["stdout of encrypt"]), "values encrypted")
	require.Contains(t, string(k.seen["error of encrypt"]), "is encrypted with key")
}

// serve starts a server whose log is seen when it has stopped.
func (k *secretKeeper) serve(file, data, logJSON string) (url string, stop func()) {
	t := k.t
	ctx, cancel := context.WithCancel(t.Context())
	out, stdout := io.Pipe()
	var log bytes.Buffer
	root := newRoot(stdout, &log)
	root.SetArgs([]string{"dev", "-c", file, "-p", "0", "--data", data, "--reload=false", "--log-level", "debug", "--log-json=" + logJSON})
	ended := make(chan error, 1)
	go func() {
		err := root.ExecuteContext(ctx)
		_ = stdout.CloseWithError(err)
		ended <- err
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	go func() { _, _ = io.Copy(io.Discard, out) }()
	return strings.TrimPrefix(strings.TrimSpace(line), "understudy listening on "), func() {
		cancel()
		require.NoError(t, <-ended)
		k.saw("log", log.Bytes())
		require.NotEmpty(t, log.Bytes())
	}
}
