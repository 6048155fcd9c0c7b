package deerflow

import (
	"context"
	"time"

	"understudy/id"
)

// Feedback is what a user thinks of a run.
type Feedback struct {
	ID        string // UUID
	Run       id.Run
	Thread    id.Thread
	User      string
	Message   *string // id of the message that was rated
	Rating    int     // 1 or -1
	Comment   *string
	CreatedAt time.Time
}

// Tally counts the feedback of a run.
type Tally struct{ Total, Positive, Negative int }

// Feedbacks keeps feedback: at most one of each user for a run. Deleting a thread deletes its feedback.
type Feedbacks interface {
	// PutFeedback inserts f, or replaces rating, comment and message of the one that its user has given for the run; it returns the row.
	PutFeedback(ctx context.Context, f Feedback) (Feedback, error)
	// FeedbackOf returns the feedback of a user for runs of a thread, oldest first; no runs: all of the thread.
	FeedbackOf(ctx context.Context, user string, t id.Thread, runs ...id.Run) ([]Feedback, error)
	// Feedback returns one by its id; fault.NotFound.
	Feedback(ctx context.Context, feedback string) (Feedback, error)
	DeleteFeedback(ctx context.Context, feedback string) error
	// TallyFeedback counts over all users.
	TallyFeedback(ctx context.Context, t id.Thread, r id.Run) (Tally, error)
}
