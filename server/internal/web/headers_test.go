package web

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/gofiber/fiber/v2"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"understudy/internal/header"
)

// Whatever baggage says of a trace, what reaches a run is as bodies are: UTF-8 without NUL, and JSON of limited depth with finite numbers.
func TestTraceIsAsBodiesAre(t *testing.T) {
	t.Parallel()
	app := fiber.New()
	for name, metadata := range map[string]string{
		"plain": `{"a":"b"}`, "no UTF-8": "{\"a\":\"\xff\"}", "NUL": `{"a":"\u0000"}`, "raw NUL": "{\"a\":\"\x00\"}", "deep": `{"a":` + strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + "}",
		"a number beyond all": `{"a":1e999}`, "a lone surrogate": `{"a":"\ud800"}`, "white": "  {\"a\": 1}\n",
	} {
		c := app.AcquireCtx(&fasthttp.RequestCtx{})
		c.Request().Header.Set(header.Trace, "x")
		c.Request().Header.Set("baggage", "langsmith-metadata="+url.QueryEscape(metadata)+",langsmith-tags="+url.QueryEscape("t\xff,\x00")+",langsmith-project="+url.QueryEscape("p\xff\x00"))
		got := traced(c, header.Filter{}, nil)
		for key, value := range got {
			require.True(t, utf8.ValidString(value), "%s: %s", name, key)
			require.NotContains(t, value, "\x00", "%s: %s", name, key)
			require.NotContains(t, value, `\u0000`, "%s: %s", name, key)
			if header.IsJSON(key, value) {
				require.True(t, json.Valid([]byte(value)), "%s: %s", name, key)
			}
		}
		want := map[string]string{"plain": `{"a":"b"}`, "NUL": `{"a":"\ufffd"}`, "white": `{"a":1}`}[name]
		if name == "no UTF-8" {
			want = "{\"a\":\"\ufffd\"}"
		}
		require.Equal(t, want, got["langsmith-metadata"], name)
		require.Equal(t, "p\ufffd\ufffd", got["langsmith-project"], name)
		app.ReleaseCtx(c)
	}
}
