package lead_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/graph/agent/scripted"
)

const titled = "models: [{name: plain, use: x, model: x}, {name: titler, use: x, model: x}]\ntitle: {model_name: titler, max_chars: 20, max_words: 3}\n"

// titles are answers of a model that writes them.
func titles(a scripted.Answer) []scripted.Answer {
	a.When = "^Name this conversation in at most 3 words"
	return []scripted.Answer{a, {When: "^fail$", Error: "400: this model refuses"}}
}

// A model writes the title of a thread once, from its first question and answer. Its tokens are not shown.
func TestTitleOfAModel(t *testing.T) {
	t.Parallel()
	w := setup(t, titled, titles(scripted.Answer{Content: "<think>hm</think>\n\"Tea,\nand how to make it\""})...)
	long := strings.Repeat("tea ", 500)
	v, _, err := w.converse(t, "t", long, `{}`)
	require.NoError(t, err)
	require.Equal(t, "Tea, and how to make", v.Get("title").String())
	require.Equal(t, "done", v.Get("messages|@reverse|0.content").String())
	require.Len(t, w.bodies, 2)
	require.True(t, strings.HasPrefix(w.bodies[1], "titler "))
	require.Contains(t, w.last(), "Assistant: done")
	require.Less(t, len(w.last()), 800, "the model sees the beginning")
	v, _, err = w.converse(t, "t", "and coffee?", `{}`)
	require.NoError(t, err)
	require.Equal(t, "Tea, and how to make", v.Get("title").String())
	require.Len(t, w.bodies, 3)
}

// Whatever the model does, the thread has a title, and the run succeeds.
func TestTitleWithoutAModel(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		config string
		titles scripted.Answer
		asked  int // calls of models
	}{
		"fails":     {titled, scripted.Answer{Error: "500: down"}, 2},
		"nothing":   {titled, scripted.Answer{Content: "<think>"}, 2},
		"unknown":   {strings.Replace(titled, "model_name: titler", "model_name: nobody", 1), scripted.Answer{Content: "never"}, 1},
		"not named": {strings.Replace(titled, "model_name: titler, ", "", 1), scripted.Answer{Content: "never"}, 1},
	} {
		w := setup(t, tt.config, titles(tt.titles)...)
		v, _, err := w.converse(t, "t", "What is tea made of, please?", `{}`)
		require.NoError(t, err, name)
		require.Equal(t, "What is tea made of,...", v.Get("title").String(), name)
		require.Len(t, w.bodies, tt.asked, name)
	}
	// After an explanation of why the model failed no model is asked for a title.
	w := setup(t, titled, titles(scripted.Answer{Content: "never"})...)
	v, _, err := w.converse(t, "t", "fail", `{}`)
	require.Error(t, err)
	require.Equal(t, "fail", v.Get("title").String())
}

// A model that does not answer holds a run up for 15 seconds at most.
func TestTitleOfASilentModel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := setup(t, titled, titles(scripted.Answer{Content: "never", Delay: scripted.Duration(time.Hour)})...)
		began := time.Now()
		v, _, err := w.converse(t, "t", "What is tea?", `{}`)
		require.NoError(t, err)
		require.Equal(t, "What is tea?", v.Get("title").String())
		require.Equal(t, 15*time.Second, time.Since(began))
	})
}
