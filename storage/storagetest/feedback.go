package storagetest

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/deerflow"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/run"
)

// given is what a user gives for a run under one key.
func given(n, r, th int, user string, rating int, comment *string, scores string) deerflow.Feedback {
	return deerflow.Feedback{ID: string(runID(1000 + n)), Run: runID(r), Thread: threadID(th), User: user, Rating: rating, Comment: comment, Scores: raw(scores), CreatedAt: at(n)}
}

var feedbackCases = map[string]func(*testing.T, Backend){
	"is given only for runs that are there": func(t *testing.T, b Backend) {
		t.Helper()
		insertThreads(t, b, newThread(1), newThread(2))
		insertRuns(t, b, newRun(1, 1), newRun(2, 1), newRun(3, 2))
		give := func(r, th int) error {
			_, err := b.Feedback.GiveFeedback(ctx, given(r, r, th, "ada", 1, nil, `{"k":{"score":1}}`))
			return err
		}
		rows := func(r, th int) int {
			t.Helper()
			tally, err := b.Feedback.TallyFeedback(ctx, threadID(th), runID(r))
			require.NoError(t, err)
			return tally.Total
		}
		for _, r := range []int{1, 2} {
			require.NoError(t, give(r, 1))
		}
		require.NoError(t, give(3, 2))
		isKind(t, give(4, 1), fault.NotFound) // no such run
		isKind(t, give(3, 1), fault.NotFound) // it is of another thread
		isKind(t, give(1, 3), fault.NotFound) // no such thread
		for _, none := range [][2]int{{4, 1}, {3, 1}, {1, 3}} {
			require.Zero(t, rows(none[0], none[1]))
		}
		// A run that was deleted has what was given before, as its messages may still be shown.
		write(t, b, func(tx run.Tx) error { return tx.DeleteRun(threadID(1), runID(2)) })
		isKind(t, give(2, 1), fault.NotFound)
		require.Equal(t, 1, rows(2, 1))
		// Another thread has the ID of one that was deleted.
		write(t, b, func(tx run.Tx) error { return tx.DeleteThread(threadID(1)) })
		insertThreads(t, b, newThread(1))
		insertRuns(t, b, newRun(5, 1))
		for _, r := range []int{1, 2} {
			isKind(t, give(r, 1), fault.NotFound)
			require.Zero(t, rows(r, 1))
		}
		require.NoError(t, give(5, 1))
		// What is imported, or comes with a branch, is rated without its run.
		_, err := b.Feedback.PutFeedback(ctx, given(6, 6, 1, "ada", 1, nil, ""))
		require.NoError(t, err)
		require.Equal(t, 1, rows(6, 1))
	},
	"keeps scores by key, and the last rating and comment": func(t *testing.T, b Backend) {
		t.Helper()
		insertThreads(t, b, newThread(1))
		insertRuns(t, b, newRun(1, 1))
		good, bad, own := "good", "bad", "own"
		for n, step := range []struct {
			rating  int
			comment *string
			scores  string // given; "": the user rates the run itself
			want    *string
			all     string
		}{
			{1, &good, `{"a":{"comment":"good"}}`, &good, `{"a":{"comment":"good"}}`},
			{-1, nil, `{"b":{"score":0}}`, &good, `{"a":{"comment":"good"},"b":{"score":0}}`}, // of another key
			{1, nil, `{"a":{"comment":null}}`, nil, `{"a":{"comment":null},"b":{"score":0}}`},
			{1, &bad, `{"b":{"comment":"bad"}}`, &bad, `{"a":{"comment":null},"b":{"comment":"bad"}}`},
			{-1, nil, `{"b":{}}`, nil, `{"a":{"comment":null},"b":{}}`},
			{1, &own, "", &own, `{"a":{"comment":null},"b":{}}`},
			{1, nil, `{"b":{"score":1}}`, &own, `{"a":{"comment":null},"b":{"score":1}}`}, // of no key
			{-1, nil, "", nil, `{"a":{"comment":null},"b":{"score":1}}`},
		} {
			f, put := given(n, 1, 1, "ada", step.rating, step.comment, step.scores), b.Feedback.GiveFeedback
			if step.scores == "" {
				put = b.Feedback.PutFeedback
			}
			got, err := put(ctx, f)
			require.NoError(t, err)
			require.Equal(t, step.rating, got.Rating, n)
			require.Equal(t, step.want, got.Comment, n)
			require.JSONEq(t, step.all, string(got.Scores), n)
			require.Equal(t, string(runID(1000)), got.ID) // one row
		}
		_, err := b.Feedback.GiveFeedback(ctx, given(20, 1, 1, "ada", 1, nil, `{"c":"`+strings.Repeat("x", deerflow.MaxScores)+`"}`))
		require.ErrorIs(t, err, deerflow.ErrScores)
	},
	"is listed in pages": func(t *testing.T, b Backend) {
		t.Helper()
		insertThreads(t, b, newThread(1))
		insertRuns(t, b, newRun(1, 1))
		var want []id.Run
		for n := range 5 {
			f, err := b.Feedback.GiveFeedback(ctx, given(n, 1, 1, string(rune('a'+n)), 1, nil, `{}`))
			require.NoError(t, err)
			want = append(want, id.Run(f.ID))
		}
		for _, page := range [][2]int{{10, 0}, {2, 0}, {2, 2}, {2, 4}, {2, 5}, {0, 0}, {1, 1 << 40}} {
			list, err := b.Feedback.RunFeedback(ctx, threadID(1), runID(1), page[0], page[1])
			require.NoError(t, err)
			from := min(page[1], len(want))
			require.Len(t, list, min(page[0], len(want)-from), page)
			for i, f := range list {
				require.Equal(t, string(want[from+i]), f.ID)
			}
		}
	},
}
