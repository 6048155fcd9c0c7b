package provider_test

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/graph/agent/llm"
	"understudy/graph/agent/provider"
)

const embeddingKey = "SECRET-key"

// embedServer answers with what answer returns for the texts of a request.
func embedServer(t *testing.T, answer func(w http.ResponseWriter, r *http.Request, texts []string)) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in struct{ Input []string }
		body, _ := io.ReadAll(r.Body)
		if json.Unmarshal(body, &in) != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		answer(w, r, in.Input)
	}))
	t.Cleanup(s.Close)
	return s
}

// lengths answers with the length of each text, in reverse order.
func lengths(w http.ResponseWriter, texts []string, encoded bool) {
	var list []string
	for i := len(texts) - 1; i >= 0; i-- {
		vector := fmt.Sprintf("[%d, 1.5e0]", len(texts[i]))
		if encoded {
			b := binary.LittleEndian.AppendUint32(nil, math.Float32bits(float32(len(texts[i]))))
			vector = `"` + base64.StdEncoding.EncodeToString(binary.LittleEndian.AppendUint32(b, math.Float32bits(1.5))) + `"`
		}
		list = append(list, fmt.Sprintf(`{"object":"embedding","index":%d,"embedding":%s}`, i, vector))
	}
	fmt.Fprintf(w, `{"object":"list","data":[%s],"model":"m","usage":{"prompt_tokens":1,"total_tokens":1}}`, strings.Join(list, ","))
}

func openEmbeddings(t *testing.T, name string, env map[string]string) (*provider.Embeddings, error) {
	t.Helper()
	return provider.OpenEmbeddings(provider.Spec{
		Name: name, Place: "store.index", Log: slog.New(slog.DiscardHandler), Getenv: func(name string) string { return env[name] },
	}, 2)
}

func TestEmbeddings(t *testing.T) {
	t.Parallel()
	var requests atomic.Int64
	s := embedServer(t, func(w http.ResponseWriter, r *http.Request, texts []string) {
		n := requests.Add(1)
		body, _ := io.ReadAll(r.Body)
		if r.URL.Path != "/v1/embeddings" || r.Header.Get("Authorization") != "Bearer "+embeddingKey || !bytes.Contains(body, []byte(`"dimensions":2`)) || len(texts) > 100 {
			w.WriteHeader(http.StatusTeapot)
			return
		}
		if n == 1 {
			w.Header().Set("Retry-After-Ms", "1")
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		lengths(w, texts, n%2 == 0)
	})
	e, err := openEmbeddings(t, "openai:text-embedding-3-small", map[string]string{"OPENAI_API_KEY": embeddingKey, "OPENAI_BASE_URL": s.URL + "/v1"})
	require.NoError(t, err)
	texts := make([]string, 250)
	for i := range texts {
		texts[i] = strings.Repeat("x", i)
	}
	vectors, err := e.Embed(t.Context(), texts)
	require.NoError(t, err)
	require.Len(t, vectors, 250)
	for i, v := range vectors {
		require.Equal(t, []float32{float32(max(i, 1)), 1.5}, v, "empty text is sent as a space")
	}
	require.EqualValues(t, 4, requests.Load())
}

func TestEmbeddingsOfAzure(t *testing.T) {
	t.Parallel()
	s := embedServer(t, func(w http.ResponseWriter, r *http.Request, texts []string) {
		if r.URL.Path != "/openai/deployments/small/embeddings" || r.URL.RawQuery != "api-version=2024-10-21" || r.Header.Get("Api-Key") != embeddingKey {
			w.WriteHeader(http.StatusTeapot)
			return
		}
		lengths(w, texts, false)
	})
	e, err := openEmbeddings(t, "azure_openai:small", map[string]string{"AZURE_OPENAI_API_KEY": embeddingKey, "AZURE_OPENAI_ENDPOINT": s.URL + "/", "OPENAI_API_VERSION": "2024-10-21"})
	require.NoError(t, err)
	vectors, err := e.Embed(t.Context(), []string{"abc"})
	require.NoError(t, err)
	require.Equal(t, [][]float32{{3, 1.5}}, vectors)
}

// Errors name the model, say what to do, and hold no key.
func TestEmbeddingsRefused(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, body string
		status     int
		want       string
	}{
		{"key", `{"error":{"message":"Incorrect API key provided: ` + embeddingKey + `","type":"invalid_request_error","code":"invalid_api_key"}}`, 401, "OPENAI_API_KEY"},
		{"model", `{"error":{"message":"The model m does not exist","code":"model_not_found"}}`, 404, "does not exist"},
		{"error with 200", `{"error":{"message":"out of order"}}`, 200, "out of order"},
		{"page", `<html>nginx</html>`, 200, "in place of an answer"},
		{"too few", `{"data":[]}`, 200, "0 vectors for 1 texts"},
		{"twice", `{"data":[{"index":0,"embedding":[1]},{"index":0,"embedding":[1]}]}`, 200, "or two"},
		{"far index", `{"data":[{"index":7,"embedding":[1]}]}`, 200, "text 7"},
		{"no numbers", `{"data":[{"index":0,"embedding":["a"]}]}`, 200, "in place of a number"},
		{"no vector", `{"data":[{"index":0}]}`, 200, "missing"},
		{"bad base64", `{"data":[{"index":0,"embedding":"!!"}]}`, 200, "base64"},
		{"cut", `{"data":[{"index":0,"embedding":[1`, 200, "ended before"},
		{"events", "data: {}\n\n", 200, "events"},
		{"empty", ``, 200, "ended before"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := embedServer(t, func(w http.ResponseWriter, _ *http.Request, _ []string) {
				w.WriteHeader(tt.status)
				_, _ = io.WriteString(w, tt.body)
			})
			none := 0
			e, err := provider.OpenEmbeddings(provider.Spec{
				Name: "openai:m", Place: "store.index", Retries: &none, Log: slog.New(slog.DiscardHandler),
				Getenv: func(name string) string {
					return map[string]string{"OPENAI_API_KEY": embeddingKey, "OPENAI_API_BASE": s.URL}[name]
				},
			}, 2)
			require.NoError(t, err)
			_, err = e.Embed(t.Context(), []string{"a"})
			require.ErrorContains(t, err, tt.want)
			require.ErrorContains(t, err, "openai:m")
			require.NotContains(t, err.Error(), embeddingKey)
			var call *llm.CallError
			require.ErrorAs(t, err, &call)
		})
	}
}

func TestEmbeddingsMisconfigured(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		env  map[string]string
		want string
	}{
		{"openai:m", nil, "set OPENAI_API_KEY"},
		{"openai", nil, "write provider:model"},
		{"anthropic:m", nil, `no provider "anthropic"`},
		{"openai:", map[string]string{"OPENAI_API_KEY": "x"}, "no model name"},
		{"azure_openai:m", map[string]string{"AZURE_OPENAI_API_KEY": "x"}, "AZURE_OPENAI_ENDPOINT"},
		{"openai:m", map[string]string{"OPENAI_API_KEY": "x", "OPENAI_BASE_URL": "nonsense"}, "OPENAI_BASE_URL"},
	} {
		_, err := openEmbeddings(t, tt.name, tt.env)
		require.ErrorContains(t, err, tt.want)
	}
	_, err := openEmbeddings(t, "ollama:nomic-embed-text", nil)
	require.NoError(t, err)
}
