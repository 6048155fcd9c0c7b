package deerflow

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"understudy/deerflow/files"
	"understudy/deerflow/memory"
	"understudy/internal/fault"
)

// factsDir is what DeerFlow calls the folder of the facts of a memory.
const factsDir = "facts"

func agentsDir(home files.Home) func(user string) string {
	return func(user string) string { return filepath.Join(home.UserDir(user), "agents") }
}

// Memories are those in DeerFlow's files: of a user, and of a user's agents.
func Memories(home files.Home) *memory.Folders {
	agents := agentsDir(home)
	return &memory.Folders{
		File: func(subject string) string {
			user, name := memory.Of(subject)
			if name == "" {
				return filepath.Join(home.UserDir(user), memory.FileName)
			}
			return filepath.Join(agents(user), name, memory.FileName)
		},
		Facts: func(subject string) string {
			user, name := memory.Of(subject)
			if name == "" {
				name = memory.SharedAgent
			}
			return filepath.Join(agents(user), name, factsDir)
		},
	}
}

// Remembered returns the subjects that have files of memories, by users.
func Remembered(home files.Home) (subjects []string, err error) {
	for _, user := range home.Users() {
		subjects = append(subjects, user)
		list, err := os.ReadDir(agentsDir(home)(user))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, e := range list {
			if e.IsDir() && e.Name() != memory.SharedAgent {
				subjects = append(subjects, memory.Subject(user, e.Name()))
			}
		}
	}
	return subjects, nil
}

// DeleteAgent deletes an agent of a user with its memory: an agent that is made later under its name begins anew. When the agent is gone already, what remains of its memory
// is deleted.
func (d *DeerFlow) DeleteAgent(ctx context.Context, user, name string) error {
	err := d.Agents.Delete(user, name)
	if err != nil && !fault.Is(err, fault.NotFound) || d.forget == nil {
		return err
	}
	if failed := d.forget(ctx, memory.Subject(user, name)); failed != nil {
		return fmt.Errorf("forget the memory of agent %s: %w", name, failed)
	}
	return err
}

// ForgetMemory deletes the files of the memories that a user has, with those of all agents.
func (d *DeerFlow) ForgetMemory(user string) error {
	agents := agentsDir(d.Home)(user)
	list, err := os.ReadDir(agents)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	errs, dirs := []error{err}, []string{d.Home.UserDir(user)}
	for _, e := range list {
		dirs = append(dirs, filepath.Join(agents, e.Name()))
	}
	for _, dir := range dirs {
		if err := os.Remove(filepath.Join(dir, memory.FileName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
		errs = append(errs, os.RemoveAll(filepath.Join(dir, factsDir)))
	}
	return errors.Join(errs...)
}
