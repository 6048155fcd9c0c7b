package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"
)

// complete has shells complete the values of a flag; nil: nothing, rather than files.
func complete(cmd *cobra.Command, flag string, values []string) {
	completeBy(cmd, flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

func completeBy(cmd *cobra.Command, flag string, by cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(flag, by); err != nil {
		panic(err) // the flag is there
	}
}

// completeTime is how long a shell waits for a server.
const completeTime = 2 * time.Second

// completeGraphs completes the names of the graphs of the server that the flags of a command name.
func completeGraphs(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	api, err := clientOf(cmd)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(context.Background(), completeTime) // cobra gives none here
	defer cancel()
	names, _ := graphNames(ctx, api) // there is no place for an error
	return names, cobra.ShellCompDirectiveNoFileComp
}
