// Command streams keeps streams open with the server of the interoperability tests:
//
//	streams small TARGET SECONDS [AUTHORITY]   exchanges messages of one byte, each after the one before has arrived
//	streams cancel TARGET COUNT                cancels calls at several stages, on twenty connections
//	streams hold TARGET COUNT                  holds streams open at once, each of which exchanges a message then
//
// It prints how many messages, cancelled calls or streams there were. A proxy is in the environment.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
)

// The pause of the server before a message, so that streams that last leave the processors to others.
const pauseUs = 5_000

// The number of connections whose calls are cancelled. One that cancels all would look like a flood of resets.
const connections = 20

type stream = testgrpc.TestService_FullDuplexCallClient

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

func client(target string, authority []string) testgrpc.TestServiceClient {
	transport := insecure.NewCredentials()
	if len(authority) > 0 {
		transport = must(credentials.NewClientTLSFromFile(authority[0], ""))
	}
	return testgrpc.NewTestServiceClient(must(grpc.NewClient("dns:///"+target, grpc.WithTransportCredentials(transport))))
}

// exchange sends a message of one byte and receives one, which the server sends after a pause.
func exchange(stream stream, pauseUs int32) error {
	request := &testgrpc.StreamingOutputCallRequest{
		ResponseParameters: []*testgrpc.ResponseParameters{{Size: 1, IntervalUs: pauseUs}},
		Payload:            &testgrpc.Payload{Body: []byte{1}},
	}
	if err := stream.Send(request); err != nil {
		_, err = stream.Recv()
		return err
	}
	response, err := stream.Recv()
	if err == nil && len(response.GetPayload().GetBody()) != 1 {
		err = fmt.Errorf("another message: %v", response)
	}
	return err
}

func small(stream stream, seconds float64) (count int) {
	for end := time.Now().Add(time.Duration(seconds * float64(time.Second))); time.Now().Before(end); count++ {
		if err := exchange(stream, pauseUs); err != nil {
			log.Fatalf("after %d messages: %v", count, err)
		}
	}
	return count
}

// cancel begins a call, goes on to one of four stages, and cancels it.
func cancel(client testgrpc.TestServiceClient, stage int) {
	context, cancel := context.WithCancel(context.Background())
	defer cancel()
	stream := must(client.FullDuplexCall(context))
	switch stage {
	case 0: // as soon as it is opened
	case 1: // once a response is due that takes an hour
		pause := &testgrpc.ResponseParameters{Size: 1, IntervalUs: 2_000_000_000}
		request := &testgrpc.StreamingOutputCallRequest{ResponseParameters: []*testgrpc.ResponseParameters{pause}}
		if err := stream.Send(request); err != nil {
			log.Fatal(err)
		}
	case 2: // between two messages
		if err := exchange(stream, 0); err != nil {
			log.Fatal(err)
		}
	case 3: // in a message that nobody reads
		long := &testgrpc.ResponseParameters{Size: 1 << 20}
		if err := stream.Send(&testgrpc.StreamingOutputCallRequest{ResponseParameters: []*testgrpc.ResponseParameters{long, long}}); err != nil {
			log.Fatal(err)
		}
		must(stream.Header())
	}
	cancel()
	for {
		if _, err := stream.Recv(); err != nil {
			if status.Code(err) != codes.Canceled {
				log.Fatalf("at stage %d: %v", stage, err)
			}
			return
		}
	}
}

func cancelAll(target string, count int) int {
	var group sync.WaitGroup
	for number := range connections {
		group.Go(func() {
			client := client(target, nil)
			for call := range count / connections {
				cancel(client, (number+call)%4)
			}
		})
	}
	group.Wait()
	return count / connections * connections
}

func hold(target string, count int) int {
	client := client(target, nil)
	streams := make([]stream, count)
	for number := range streams {
		streams[number] = must(client.FullDuplexCall(context.Background()))
	}
	for _, stream := range streams {
		if err := exchange(stream, 0); err != nil {
			log.Fatal(err)
		}
	}
	for _, stream := range streams {
		if err := stream.CloseSend(); err != nil {
			log.Fatal(err)
		}
	}
	return count
}

func main() {
	what, target, amount, authority := os.Args[1], os.Args[2], os.Args[3], os.Args[4:]
	switch what {
	case "small":
		stream := must(client(target, authority).FullDuplexCall(context.Background()))
		fmt.Println(small(stream, must(strconv.ParseFloat(amount, 64))))
	case "cancel":
		fmt.Println(cancelAll(target, must(strconv.Atoi(amount))))
	case "hold":
		fmt.Println(hold(target, must(strconv.Atoi(amount))))
	default:
		log.Fatalf("what is %q?", what)
	}
}
