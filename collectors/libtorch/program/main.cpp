// Runs an exported module as `tracekit collect --level libtorch` asks: warm-up, timed steps, profiled steps.
//
// Usage: tracekit_libtorch JOB TRACE OUTPUT
//   JOB     what to run, written by torch.save; see job.h
//   TRACE   where Kineto's trace goes
//   OUTPUT  where the output of the last step goes, for torch.load
// Tells its progress and its result as lines of JSON on standard output.

#include <exception>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <torch/csrc/jit/serialization/pickle.h>

#include "measure.h"

namespace {

std::vector<int64_t> timed(Program& program, at::Device device, const std::string& part, int64_t count,
                           Reporter& reporter) {
  Timer timer(device);
  reporter.steps(part, count, [&](int64_t) { timer.time([&] { program.step(); }); });
  return timer.durations();
}

void keep(const c10::IValue& output, const std::string& path) {
  const auto bytes = torch::jit::pickle_save(output);
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

void record(const Job& job, const std::string& trace, const std::string& output, Reporter& reporter) {
  if (const auto threads = job.number("threads")) at::set_num_threads(static_cast<int>(threads));
  const at::Device device(job.text("device"));
  const auto made = program(job, device);
  at::manual_seed(std::stoull(job.text("seed")));  // of the devices; the host goes on from where Python was
  auto random = at::globalContext().defaultGenerator(at::kCPU);
  random.set_state(job.tensor("random_state"));
  const auto steps = job.number("steps");
  const auto warmup = timed(*made, device, "warm-up", job.number("warmup"), reporter);
  reset_peaks(device);
  const auto taken = timed(*made, device, "measure", steps, reporter);
  const auto samples = peaks(device);
  keep(profile(*made, device, steps, trace, reporter), output);
  reporter.tell("result", "\"threads\":" + std::to_string(at::get_num_threads()) + ",\"warmup_ns\":" +
                              listed(warmup) + ",\"step_ns\":" + listed(taken) + ",\"clock\":" +
                              (device.is_cpu() ? "\"perf_counter\"" : "\"cuda_event\"") + ",\"samples\":" +
                              samples);
}

// The line that says that memory ran out; nothing where the message is of something else.
std::string of_memory(const std::string& message) {
  std::istringstream lines(message);
  for (std::string line; std::getline(lines, line);) {
    for (const auto* words : {"out of memory", "can't allocate memory"}) {
      if (line.find(words) != std::string::npos) return line;
    }
  }
  return "";
}

int failed(const std::string& message, Reporter& reporter) {
  if (const auto line = of_memory(message); !line.empty()) {
    reporter.tell("error", "\"kind\":\"CollectionError\",\"message\":" +
                               quoted("the C++ program ran out of memory: " + line) +
                               ",\"hint\":\"lower --batch-size or --resolution\"");
  }
  std::cerr << message << "\n";
  return 5;
}

}  // namespace

int main(int count, char** words) {
  if (count != 4) {
    std::cerr << "usage: tracekit_libtorch JOB TRACE OUTPUT\n";
    return 2;
  }
  Reporter reporter;
  try {
    record(Job(words[1]), words[2], words[3], reporter);
    return 0;
  } catch (const c10::Error& error) {
    return failed(error.what_without_backtrace(), reporter);
  } catch (const std::exception& error) {
    return failed(error.what(), reporter);
  }
}
