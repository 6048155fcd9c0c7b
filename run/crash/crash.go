// Package crash decides which runs may have killed the servers that executed them.
//
// A server that is killed leaves its runs as running. The server that takes them over cannot know whether one of them killed it (for example
// one whose state exceeds the memory at every start), or the machine or an operator did. So Run.Crashes counts the servers that died while
// they executed the run, since it saved its last checkpoint:
//
//	0, 1  Executed as any other run.
//	2     A suspect: executed as the only suspect of its server, which claims nothing else until the run has saved a checkpoint or has survived
//	      for a time (Company; a minute at most). When another suspect ends the server after that, the run is no suspect any more. A run that was the only one of a server that died is one at once.
//	3     A server died while it executed the run as the only suspect. Before the next turn the run waits. When a server dies while it waits,
//	      and executes no other suspect, then the cause is another, and the run is no suspect any more.
//	4     That happened twice. It ends with an error.
//
// A run that is alone is started three times. Runs that died with another one are started again until they save a checkpoint, one after the
// other if they have to. A hand-back is no death; a server that has lost a lease and lives clears the count (Acquit).
package crash

import "understudy/run"

const (
	suspectCrashes = 2
	doubtedCrashes = 3
	maxCrashes     = 4
)

// Suspect reports whether a run may begin only as the only suspect of its server.
func Suspect(r *run.Run) bool { return r.Crashes >= suspectCrashes }

// Doubted reports whether a suspect waits before its turn.
func Doubted(r *run.Run) bool { return r.Crashes >= doubtedCrashes }

// Hopeless reports whether a run is not started again.
func Hopeless(r *run.Run) bool { return r.Crashes >= maxCrashes }

// Deaths are the deaths of servers, by their names.
type Deaths map[string]death

// death is what is known of the end of a server from the runs that it left.
type death struct {
	single bool // it executed one run
	blamed bool // it executed a suspect alone
}

// DeathsOf derives the deaths of owners from the runs that they left.
func DeathsOf(runs []*run.Run) Deaths {
	count := map[string]int{}
	all := Deaths{}
	for _, r := range runs {
		count[r.Owner]++
		d := all[r.Owner]
		all[r.Owner] = death{single: count[r.Owner] == 1, blamed: d.blamed || r.Turn == run.Alone}
	}
	return all
}

// Count counts the death of the owner of a run in its row.
func (all Deaths) Count(r *run.Run) {
	d := all[r.Owner]
	switch waited := Suspect(r) && r.Turn == run.NoTurn; {
	case Hopeless(r), waited && d.blamed:
	case waited, r.Turn == run.Company && d.blamed:
		r.Crashes = 1
	case r.Turn == run.Alone:
		r.Crashes++
	case d.single:
		r.Crashes = max(r.Crashes+1, suspectCrashes)
	case r.Crashes < suspectCrashes:
		r.Crashes++
	}
	r.Turn = run.NoTurn
}

// Plan says, for the log, what follows for a run after Count. r has the owner that died.
func (all Deaths) Plan(r *run.Run) string {
	switch {
	case Hopeless(r):
		return "it ends with ServerDied: two servers died while it was tried alone"
	case Doubted(r):
		return "it waits, and is then tried alone once more"
	case Suspect(r) && all[r.Owner].single:
		return "its server executed no other run, so it may be the cause: it is tried alone next"
	case Suspect(r):
		return "servers died again while they executed it: it is tried alone next"
	}
	return "it resumes together with other runs"
}

// Acquit forgets the deaths that were counted of a run: it was taken over from a server that lives.
func Acquit(tx run.QueueTx, row *run.Run) error {
	if row.Status.Over() || row.Crashes == 0 {
		return nil
	}
	row.Crashes = 0
	return tx.UpdateRun(row)
}
