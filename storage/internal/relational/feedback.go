package relational

import (
	"context"
	"slices"

	"understudy/deerflow"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/internal/jsonobj"
)

var errNoFeedback = fault.New(fault.NotFound, "feedback not found")

const feedbackColumns = "feedback_id, thread_id, run_id, account_id, message_id, rating, comment, created_at, scores"

func scanFeedback(r Row) deerflow.Feedback {
	return deerflow.Feedback{
		ID: r.Text(0), Thread: id.Thread(r.Text(1)), Run: id.Run(r.Text(2)), User: r.Text(3), Message: pointer(r, 4, r.Text), Rating: int(r.Int(5)), Comment: pointer(r, 6, r.Text), CreatedAt: r.Time(7), Scores: r.Bytes(8),
	}
}

var (
	putFeedback = same(insertInto("feedback", feedbackColumns) + " ON CONFLICT (thread_id, run_id, account_id) DO UPDATE SET " +
		"message_id = coalesce(excluded.message_id, feedback.message_id), rating = excluded.rating, comment = excluded.comment, scores = coalesce(excluded.scores, feedback.scores)")
	selectFeedback   = same("SELECT " + feedbackColumns + " FROM feedback WHERE feedback_id = $1")
	feedbackOfRun    = same("SELECT " + feedbackColumns + " FROM feedback WHERE thread_id = $1 AND run_id = $2 AND account_id = $3")
	feedbackOfAll    = same("SELECT " + feedbackColumns + " FROM feedback WHERE thread_id = $1 AND run_id = $2 ORDER BY created_at, feedback_id LIMIT $3 OFFSET $4")
	feedbackOfThread = same("SELECT " + feedbackColumns + " FROM feedback WHERE thread_id = $1 AND account_id = $2 ORDER BY created_at, feedback_id")
	ratedRun         = same("SELECT 1 FROM runs " + OfThreads + "run_id = $1 AND thread_id = $2")
	deleteFeedback   = same("DELETE FROM feedback WHERE feedback_id = $1")
	tallyFeedback    = same("SELECT count(*), coalesce(sum(CASE WHEN rating > 0 THEN 1 ELSE 0 END), 0) FROM feedback WHERE thread_id = $1 AND run_id = $2")
)

// PutFeedback implements deerflow.Feedbacks.
func (s feedbackStore) PutFeedback(ctx context.Context, f deerflow.Feedback) (out deerflow.Feedback, err error) {
	err = s.db.Write(ctx, func(tx *Tx) error {
		tx.Lock(f.Thread) // so that it is not deleted meanwhile
		if _, err := tx.Thread(f.Thread); err != nil {
			return err
		}
		f.Scores = nil
		out, err = tx.putFeedback(f)
		return err
	})
	return out, err
}

// GiveFeedback implements deerflow.Feedbacks.
func (s feedbackStore) GiveFeedback(ctx context.Context, f deerflow.Feedback) (out deerflow.Feedback, err error) {
	err = s.db.Write(ctx, func(tx *Tx) error {
		tx.Lock(f.Thread) // so that neither it nor the run is deleted meanwhile
		if _, err := tx.Thread(f.Thread); err != nil {
			return err
		}
		switch found, err := one(tx, ratedRun, nil, f.Run, f.Thread); {
		case err != nil:
			return err
		case !found:
			return ErrNoRun
		}
		before, found, err := first(tx, feedbackOfRun, scanFeedback, f.Thread, f.Run, f.User)
		if err != nil {
			return err
		}
		put := f
		if found {
			put.Scores = jsonobj.Merge(before.Scores, f.Scores)
			if put.Comment == nil && !said(before, f) {
				put.Comment = before.Comment
			}
		}
		if len(put.Scores) > deerflow.MaxScores {
			return deerflow.ErrScores
		}
		out, err = tx.putFeedback(put)
		return err
	})
	return out, err
}

// said reports whether the comment of what a user gave before is that of a key which is given again.
func said(before, again deerflow.Feedback) bool {
	was := jsonobj.Of(before.Scores)
	return before.Comment != nil && slices.ContainsFunc(jsonobj.Of(again.Scores).Keys(), func(key string) bool {
		return jsonobj.Of(was.Get(key)).Text("comment") == *before.Comment
	})
}

func (tx *Tx) putFeedback(f deerflow.Feedback) (out deerflow.Feedback, err error) {
	if err := tx.Exec(putFeedback, f.ID, f.Thread, f.Run, f.User, f.Message, f.Rating, f.Comment, f.CreatedAt, f.Scores); err != nil {
		return out, err
	}
	return the(tx, errNoFeedback, feedbackOfRun, scanFeedback, f.Thread, f.Run, f.User)
}

// FeedbackOf implements deerflow.Feedbacks.
func (s feedbackStore) FeedbackOf(ctx context.Context, user string, t id.Thread, runs ...id.Run) (list []deerflow.Feedback, err error) {
	err = s.db.Read(ctx, func(q Querier) error {
		list = nil
		return q.Query(feedbackOfThread, func(r Row) error {
			if f := scanFeedback(r); len(runs) == 0 || slices.Contains(runs, f.Run) {
				list = append(list, f)
			}
			return nil
		}, t, user)
	})
	return list, err
}

// RunFeedback implements deerflow.Feedbacks.
func (s feedbackStore) RunFeedback(ctx context.Context, t id.Thread, r id.Run, limit, offset int) (list []deerflow.Feedback, err error) {
	err = s.db.Read(ctx, func(q Querier) (err error) {
		list, err = all(q, feedbackOfAll, scanFeedback, t, r, limit, offset)
		return err
	})
	return list, err
}

// Feedback implements deerflow.Feedbacks.
func (s feedbackStore) Feedback(ctx context.Context, feedback string) (deerflow.Feedback, error) {
	return from(ctx, s.db.Read, func(q Querier) (deerflow.Feedback, error) {
		return the(q, errNoFeedback, selectFeedback, scanFeedback, feedback)
	})
}

// DeleteFeedback implements deerflow.Feedbacks.
func (s feedbackStore) DeleteFeedback(ctx context.Context, feedback string) error {
	return s.db.Write(ctx, func(tx *Tx) error {
		return tx.change(errNoFeedback, "delete feedback "+feedback, deleteFeedback, feedback)
	})
}

// TallyFeedback implements deerflow.Feedbacks.
func (s feedbackStore) TallyFeedback(ctx context.Context, t id.Thread, run id.Run) (tally deerflow.Tally, err error) {
	err = s.db.Read(ctx, func(q Querier) error {
		_, err := one(q, tallyFeedback, func(r Row) error {
			tally.Total, tally.Positive = int(r.Int(0)), int(r.Int(1))
			tally.Negative = tally.Total - tally.Positive
			return nil
		}, t, run)
		return err
	})
	return tally, err
}
