package gate

import (
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/access"
	"understudy/internal/encryption"
	"understudy/internal/fault"
	"understudy/internal/logtest"
)

// handlers starts handlers of testdata/encryption.py. mode makes them fail.
func handlers(t *testing.T, spec string, timeout time.Duration) (e *Encryption, mode func(string)) {
	t.Helper()
	o := options(t)
	file := filepath.Join(t.TempDir(), "mode")
	o.Encryption, o.Timeout, o.Env = "./encryption.py:"+spec, timeout, append(o.Env, "UNDERSTUDY_TEST_MODE="+file)
	e, err := StartEncryption(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	return e, func(m string) { require.NoError(t, os.WriteFile(file, []byte(m), 0o600)) }
}

func TestEncryptionHandlers(t *testing.T) {
	t.Parallel()
	key := []byte("0123456789abcdef0123456789abcdef")
	for _, spec := range []string{"encryption", "only_json"} {
		t.Run(spec, func(t *testing.T) {
			t.Parallel()
			e, _ := handlers(t, spec, 0)
			ctx := t.Context()
			var list []encryption.Wrapped
			for _, c := range []encryption.Context{"", `{"tenant":"a"}`, `{"tenant":"b"}`} {
				wrapped, err := e.Wrap(ctx, c, key)
				require.NoError(t, err)
				require.NotContains(t, string(wrapped), string(key))
				list = append(list, encryption.Wrapped{Context: c, Key: wrapped})
			}
			list = append(list, encryption.Wrapped{Key: []byte("bdamaged")}, encryption.Wrapped{Key: []byte{}})
			back, err := e.Unwrap(ctx, list)
			require.NoError(t, err)
			require.Len(t, back, len(list))
			for i, u := range back {
				if i < 3 {
					require.NoError(t, u.Err)
					require.Equal(t, key, u.Key)
				} else {
					require.Error(t, u.Err)
				}
			}
			readable, err := e.Readable(ctx, "", []string{"email", "owner", "a\"ü"})
			require.NoError(t, err)
			require.Equal(t, []bool{false, true, false}, readable)
		})
	}
	t.Run("the context of a request", func(t *testing.T) {
		t.Parallel()
		e, _ := handlers(t, "encryption", 0)
		c, err := e.Context(t.Context(), `{"a":1}`, nil)
		require.NoError(t, err)
		require.Equal(t, encryption.Context(`{"a":1}`), c)
		c, err = e.Context(t.Context(), `{"a":1,"tenant":"b"}`, &access.Actor{Identity: "ann", Authenticated: true})
		require.NoError(t, err)
		require.Equal(t, encryption.Context(`{"a":1,"tenant":"ann"}`), c)
	})
}

// Whatever handlers do, a caller gets an error that says nothing about it.
func TestEncryptionHandlersThatFail(t *testing.T) {
	t.Parallel()
	e, mode := handlers(t, "encryption", time.Second)
	ctx := t.Context()
	wrapped, err := e.Wrap(ctx, "", []byte("key"))
	require.NoError(t, err)
	for _, m := range []string{"raise", "text", "slow", "die"} {
		mode(m)
		_, err := e.Wrap(ctx, "", []byte("key"))
		require.Error(t, err, m)
		var said *fault.Error
		require.ErrorAs(t, err, &said)
		require.NotContains(t, said.Message, "key service", m)
		if m == "slow" || m == "die" {
			require.True(t, fault.Is(err, fault.Unavailable), "%s: %v", m, err)
		} else {
			require.True(t, fault.Is(err, fault.Internal), "%s: %v", m, err)
		}
		mode("")
		require.Eventually(t, func() bool { // a process that died is started again
			_, err := e.Wrap(ctx, "", []byte("key"))
			return err == nil
		}, 20*time.Second, 10*time.Millisecond, m)
	}
	mode("drops")
	_, err = e.Readable(ctx, "", []string{"a"})
	require.True(t, fault.Is(err, fault.Internal), err)
	mode("wrong")
	back, err := e.Unwrap(ctx, []encryption.Wrapped{{Key: wrapped}})
	require.NoError(t, err)
	require.NotEqual(t, []byte("key"), back[0].Key)
	mode("rotate")
	back, err = e.Unwrap(ctx, []encryption.Wrapped{{Key: wrapped}})
	require.NoError(t, err)
	require.Equal(t, []byte("key"), back[0].Key)
	require.NotEmpty(t, back[0].Replacement)
	require.NotEqual(t, wrapped, back[0].Replacement)
}

// Whatever handlers do for one of many keys, the others are decrypted; if the process ends, all are refused.
func TestOneKeyOfMany(t *testing.T) {
	t.Parallel()
	e, mode := handlers(t, "encryption", 2*time.Second)
	ctx := t.Context()
	var list []encryption.Wrapped
	for _, c := range []encryption.Context{`{"tenant":"a"}`, `{"tenant":"b"}`, `{"tenant":"c"}`} {
		wrapped, err := e.Wrap(ctx, c, []byte("key"))
		require.NoError(t, err)
		list = append(list, encryption.Wrapped{Context: c, Key: wrapped})
	}
	for _, m := range []string{"refuse b", "hang b", "exit b", "cancel b"} {
		mode(m)
		back, err := e.Unwrap(ctx, list)
		require.NoError(t, err, m)
		require.Len(t, back, 3)
		for i, u := range back {
			if i == 1 {
				require.True(t, fault.Is(u.Err, fault.Internal), "%s: %v", m, u.Err)
				continue
			}
			require.NoError(t, u.Err, m)
			require.Equal(t, []byte("key"), u.Key)
		}
	}
	mode("die b")
	_, err := e.Unwrap(ctx, list)
	require.True(t, fault.Is(err, fault.Unavailable), err)
}

func TestEncryptionThatDoesNotLoad(t *testing.T) {
	t.Parallel()
	for spec, want := range map[string]string{
		"half": "there is no @encryption.decrypt.blob", "empty": "it has no handlers", "number": "it is a int", "absent": "there is no 'absent'",
	} {
		o := options(t)
		o.Encryption = "./encryption.py:" + spec
		_, err := StartEncryption(t.Context(), o)
		var s *StartError
		require.ErrorAs(t, err, &s)
		require.Equal(t, "encryption.path", s.Part)
		require.Contains(t, s.Error(), want)
	}
	o := options(t)
	o.Encryption = "./encryption.py:lists_keys"
	e, err := StartEncryption(t.Context(), o)
	require.NoError(t, err)
	defer e.Close()
	_, err = e.Wrap(t.Context(), "", []byte("0123456789abcdef"))
	require.ErrorContains(t, err, "encryption failed", "it leaves a data key readable")
}

// A handler that hangs is named as users write it, with its line: while it hangs, when it is given up, and in the error, of which a client sees no more than before.
func TestEncryptionHandlersThatHang(t *testing.T) {
	t.Parallel()
	log := &logtest.Buffer{}
	o := options(t)
	file := filepath.Join(t.TempDir(), "mode")
	o.Encryption, o.Timeout, o.Env = "./encryption.py:encryption", 2*time.Second, append(o.Env, "UNDERSTUDY_TEST_MODE="+file)
	o.Logger = slog.New(slog.NewTextHandler(log, nil))
	g := New(o)
	g.slowAnswer = 200 * time.Millisecond
	e, err := startEncryption(t.Context(), g)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	key, err := e.Wrap(t.Context(), "", []byte("key"))
	require.NoError(t, err)
	for _, c := range []struct {
		handler string
		ask     func() error
	}{
		{"@encryption.encrypt.blob", func() error { _, err := e.Wrap(t.Context(), "", []byte("key")); return err }},
		{"@encryption.decrypt.blob", func() error { _, err := e.Unwrap(t.Context(), []encryption.Wrapped{{Key: key}}); return err }},
		{"@encryption.encrypt.json", func() error { _, err := e.Readable(t.Context(), "", []string{"a"}); return err }},
		{"@encryption.context", func() error { _, err := e.Context(t.Context(), "", nil); return err }},
	} {
		require.NoError(t, os.WriteFile(file, []byte("slow"), 0o600))
		err := c.ask()
		var said *fault.Error
		require.ErrorAs(t, err, &said)
		require.Equal(t, errNotEncrypted.Message, said.Message)
		at := regexp.QuoteMeta(c.handler) + `\W+(at=)?encryption.py:\d+`
		require.Regexp(t, `encryption.path: `+at+`\) did not answer within 2s; look for calls without a timeout there, or raise --gate-timeout`, err)
		require.Regexp(t, `a handler of encryption.path has not answered yet; .* handler=`+at, log.String())
		require.Regexp(t, `a handler of encryption.path did not answer in time: .* handler=`+at, log.String())
	}
	require.NotContains(t, log.String(), "question")
	require.NotContains(t, log.String(), "request")
}
