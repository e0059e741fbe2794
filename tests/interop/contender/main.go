// Command contender contends for a Lease with client-go's leader election, and writes an object for as long as it
// believes that it leads. It is the other side of the fail-over campaign in ../tests/failover.rs.
//
// Standard output has a line for each event: "leading", "lost".
//
// With -walk it takes typed objects through every verb in protobuf instead, and with -walk-kinds an object of each kind
// through the verbs of a clientset at its defaults; both are for ../tests/walk.rs, and end with "walked".
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "the kubeconfig to use")
	identity := flag.String("identity", "", "the identity of the holder")
	namespace := flag.String("namespace", "default", "where the lease and the object are")
	lease := flag.String("lease", "contended", "the lease")
	object := flag.String("object", "work", "the ConfigMap that is written while leading")
	leaseDuration := flag.Duration("lease-duration", 15*time.Second, "how long others wait after a renewal")
	renewDeadline := flag.Duration("renew-deadline", 10*time.Second, "how long the leader tries to renew")
	retryPeriod := flag.Duration("retry-period", 2*time.Second, "how long between two tries")
	release := flag.Bool("release", true, "whether to release the lease at the end")
	walks := flag.Bool("walk", false, "whether to walk through every verb in protobuf, instead of contending")
	manifests := flag.String("walk-kinds", "", "a JSON list of objects to walk with through the verbs, instead of contending")
	flag.Parse()

	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	check(err)
	config.QPS = -1
	if *walks {
		walk(config, *namespace)
		return
	}
	if *manifests != "" {
		walkKinds(config, *manifests)
		return
	}
	lock, err := resourcelock.NewFromKubeconfig(resourcelock.LeasesResourceLock, *namespace, *lease,
		resourcelock.ResourceLockConfig{Identity: *identity}, config, *renewDeadline)
	check(err)
	client, err := kubernetes.NewForConfig(config)
	check(err)

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:            lock,
		LeaseDuration:   *leaseDuration,
		RenewDeadline:   *renewDeadline,
		RetryPeriod:     *retryPeriod,
		ReleaseOnCancel: *release,
		Name:            *lease,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				fmt.Println("leading")
				write(ctx, client, *namespace, *object, *identity)
			},
			OnStoppedLeading: func() { fmt.Println("lost") },
		},
	})
	check(err)
	elector.Run(ctx)
}

// write writes the leader's identity to the object, again and again.
func write(ctx context.Context, client kubernetes.Interface, namespace, object, identity string) {
	for count := 0; ctx.Err() == nil; count++ {
		patch, err := json.Marshal(map[string]any{"data": map[string]string{
			"leader": identity,
			"count":  fmt.Sprint(count),
		}})
		check(err)
		limited, cancel := context.WithTimeout(ctx, time.Second)
		_, err = client.CoreV1().ConfigMaps(namespace).Patch(limited, object, types.MergePatchType, patch, metav1.PatchOptions{})
		cancel()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
